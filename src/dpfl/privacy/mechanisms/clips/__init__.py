"""Clips: what one unit can add to a sum at most, in real numbers and in float arithmetic."""
