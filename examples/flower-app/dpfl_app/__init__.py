"""The server of a federation, and nothing for its nodes."""
