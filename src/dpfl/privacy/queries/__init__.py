"""Private queries: what a client answers once beside its updates, each answer a paid release."""
