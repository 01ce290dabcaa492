"""The server of a federation. Its nodes need no app."""
