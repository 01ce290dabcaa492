"""A run: set-up, the round loop, the ledgers read together, and the records of it."""
