"""Events, accountants, calibration and budgets."""
