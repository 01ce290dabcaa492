"""The messages between server and nodes, whatever carries them.

- `messages.py`: signed messages, as bytes.
- `transport.py`: the interface of whatever carries them.
- `keys.py`: Ed25519 keys and signatures.
- `proposal.py`: a run as it is proposed to a node, before its first release.
- `task_messages.py` with `wire_parts.py` and `value_forms.py`: tasks and replies.
- `secure_sum_messages.py`: the steps of secure sums.
- `ledger_head.py` with `head_words.py`, and `known_heads.py`: how far a node's ledger has come,
  signed, and who remembers it.

Nothing here trusts what it reads. Bytes are checked before they are parsed, and every field is
checked before a value is made of it. Whatever does not fit raises a `ProtocolError`.
"""
