"""What releases cost: events, accountants, calibration, and budgets."""
