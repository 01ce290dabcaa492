"""Convergence bounds of the papers that no system computes with."""
