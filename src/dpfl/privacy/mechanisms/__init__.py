"""Sampling, clipping, noise, and the release that composes them."""
