"""A run: set-up, the round loop, the ledgers read together, and what is kept."""
