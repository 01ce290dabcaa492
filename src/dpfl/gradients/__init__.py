"""Clipped sums of per-unit gradients: what a private step computes before it adds noise.

Start with `clipped.py`, which explains the method and its references.
"""
