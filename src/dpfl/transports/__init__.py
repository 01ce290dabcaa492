"""Carriers of messages. Each knows nothing of what is in them."""
