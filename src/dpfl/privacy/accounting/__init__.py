"""Computes what releases cost: events, accountants, calibration, and budgets."""
