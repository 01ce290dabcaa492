"""Experiment files: what a user writes, checked and turned into parts."""
