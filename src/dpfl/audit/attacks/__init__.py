"""Attacks on a trained model: membership inference and gradient inversion."""
