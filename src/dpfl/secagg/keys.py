"""Set-up, once a run: two X25519 keys a member, signed by the identity that the others' owners were given."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from dpfl.secagg.group import FEWEST, Group
from dpfl.secagg.messages import Card, Refusal, Why, words


def card(group: Group, name: str, identity: Ed25519PrivateKey, mask: X25519PrivateKey, envelope: X25519PrivateKey) -> Card:
    keys = (mask.public_key().public_bytes_raw(), envelope.public_key().public_bytes_raw())
    return Card(name, *keys, identity.sign(_signed(group, name, *keys)))


def _signed(group: Group, name: str, mask: bytes, envelope: bytes) -> bytes:
    return words("card", group.run, name, mask.hex(), envelope.hex())


def check(group: Group, shown: Card) -> None:
    """That a member signed these keys for this run, and something can be agreed with them."""
    signed = _signed(group, shown.name, shown.mask, shown.envelope)
    if not verified(group.identities.get(shown.name, ""), shown.signature, signed):
        raise Refusal(
            f"The keys of {shown.name} are not signed by it for this run; start again, or ask {shown.name}.", Why.KEYS
        )
    for key in (shown.mask, shown.envelope):
        agreed(X25519PrivateKey.generate(), shown.name, key)


def present(group: Group, cards: Sequence[Card]) -> Group:
    """Those who showed keys, if they are members, each once, and enough."""
    names = [shown.name for shown in cards]
    if len(set(names)) < len(names) or not set(names) <= set(group.names):
        raise Refusal("The keys that were shown are not those of the members, each once; start the run again.", Why.KEYS)
    if len(names) < max(group.survivors, FEWEST):
        raise Refusal(f"{len(names)} members showed keys, of {group.survivors} needed; wait for more.", Why.TOO_FEW)
    return group.among(names)


def session(group: Group, cards: Sequence[Card]) -> str:
    """A digest of the run, its rules and all keys, once all cards are checked. Every mask and signature is derived with it, so
    that members who were shown different keys or rules have nothing in common that a server could use.
    """
    if sorted(card.name for card in cards) != list(group.names):
        raise Refusal("The keys that were shown are not those of the members, each once; start the run again.", Why.KEYS)
    for shown in cards:
        check(group, shown)
    shown_by = {shown.name: [shown.mask.hex(), shown.envelope.hex()] for shown in cards}
    keys = [word for name in group.names for word in (name, group.identities[name], *shown_by[name])]
    return hashlib.sha256(words("session", group.run, group.survivors, group.colluders, *keys)).hexdigest()


def verified(identity: str, signature: bytes, content: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(identity)).verify(signature, content)
        return True
    except (InvalidSignature, ValueError):
        return False


def agreed(own: X25519PrivateKey, name: str, other: bytes) -> bytes:
    """What two members know and nobody else; a key of low order, with which everybody would know it, is refused."""
    try:
        return own.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError:
        raise Refusal(f"{name} has a key with which nothing can be agreed; it must make another.", Why.KEYS) from None
