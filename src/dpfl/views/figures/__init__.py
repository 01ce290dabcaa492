"""Figures of runs, drawn by matplotlib."""
