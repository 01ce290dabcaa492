"""Runs over nodes on other machines: who joins, and on what terms."""
