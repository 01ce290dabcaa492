"""Ledgers: append-only, hash-chained records of every private release."""
