"""Noise: Gaussian in floating point and on a grid, shared by clients, on Haar coefficients, and
noise that later rounds take back.
"""
