"""Set-up, once a run: two X25519 keys a member, signed by the identity that the others' owners were
given.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from dpfl.secagg.group import FEWEST, SumGroup
from dpfl.secagg.messages import KeyAdvertisement, MemberRefusal, RefusalCause, words


def card(
    group: SumGroup,
    name: str,
    identity: Ed25519PrivateKey,
    mask: X25519PrivateKey,
    envelope: X25519PrivateKey,
) -> KeyAdvertisement:
    keys = (mask.public_key().public_bytes_raw(), envelope.public_key().public_bytes_raw())
    return KeyAdvertisement(name, *keys, identity.sign(_signed(group, name, *keys)))


def _signed(group: SumGroup, name: str, mask: bytes, envelope: bytes) -> bytes:
    return words("card", group.run, name, mask.hex(), envelope.hex())


def check(group: SumGroup, shown: KeyAdvertisement) -> None:
    """That a member signed these keys for this run, and something can be agreed with them."""
    signed = _signed(group, shown.name, shown.mask, shown.envelope)
    if not verify_advertisement(group.identities.get(shown.name, ""), shown.signature, signed):
        raise MemberRefusal(
            f"The keys of {shown.name} are not signed by it for this run; start again, or ask "
            f"{shown.name}.",
            RefusalCause.KEYS,
        )
    for key in (shown.mask, shown.envelope):
        agree(X25519PrivateKey.generate(), shown.name, key)


def present(group: SumGroup, cards: Sequence[KeyAdvertisement]) -> SumGroup:
    """Those who showed keys, if they are members, each once, and enough."""
    names = [shown.name for shown in cards]
    if len(set(names)) < len(names) or not set(names) <= set(group.names):
        raise MemberRefusal(
            "The keys that were shown are not those of the members, each once; start the run "
            "again.",
            RefusalCause.KEYS,
        )
    if len(names) < max(group.survivors, FEWEST):
        raise MemberRefusal(
            f"{len(names)} members showed keys, of {group.survivors} needed; wait for more.",
            RefusalCause.TOO_FEW,
        )
    return group.among(names)


def session(group: SumGroup, cards: Sequence[KeyAdvertisement]) -> str:
    """A digest of the run, its rules and all keys, once all cards are checked. Every mask and
    signature is derived with it, so that members who were shown different keys or rules have
    nothing in common that a server could use.
    """
    if sorted(card.name for card in cards) != list(group.names):
        raise MemberRefusal(
            "The keys that were shown are not those of the members, each once; start the run "
            "again.",
            RefusalCause.KEYS,
        )
    for shown in cards:
        check(group, shown)
    shown_by = {shown.name: [shown.mask.hex(), shown.envelope.hex()] for shown in cards}
    keys = [
        word for name in group.names for word in (name, group.identities[name], *shown_by[name])
    ]
    return hashlib.sha256(
        words("session", group.run, group.survivors, group.colluders, *keys)
    ).hexdigest()


def verify_advertisement(identity: str, signature: bytes, content: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(identity)).verify(signature, content)
        return True
    except (InvalidSignature, ValueError):
        return False


def agree(own: X25519PrivateKey, name: str, other: bytes) -> bytes:
    """What two members know and nobody else; a key of low order, with which everybody would know
    it, is refused.
    """
    try:
        return own.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError:
        raise MemberRefusal(
            f"{name} has a key with which nothing can be agreed; it must make another.",
            RefusalCause.KEYS,
        ) from None
