"""A user's table: its declaration, its files, and its rows as numbers."""
