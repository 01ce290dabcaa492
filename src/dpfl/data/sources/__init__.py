"""Readers of the files that data comes in, and where these files lie."""
