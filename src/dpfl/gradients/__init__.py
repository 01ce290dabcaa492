"""Clipped sums of per-sample gradients: passes, rules a layer, what they refuse."""
