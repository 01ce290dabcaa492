"""A client's ledger: an append-only, hash-chained record of every release."""
