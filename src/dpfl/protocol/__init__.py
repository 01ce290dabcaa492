"""What server and nodes say to each other: signed messages, proposals, keys, and the transport
interface.
"""
