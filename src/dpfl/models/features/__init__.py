"""Fixed features that need no private data."""
