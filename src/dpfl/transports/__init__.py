"""Transports: what carries signed messages between a server and its nodes."""
