"""Set-up, once per session: two X25519 keys per member, signed with the member's identity.

This is AdvertiseKeys of Bonawitz et al. 2017. The identities are exchanged by the owners of the
members, so the server cannot invent members.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from dpfl.secagg.group import FEWEST, SumGroup
from dpfl.secagg.messages import KeyAdvertisement, MemberRefusal, RefusalCause, words


def advertise_keys(
    group: SumGroup,
    name: str,
    identity: Ed25519PrivateKey,
    mask: X25519PrivateKey,
    envelope: X25519PrivateKey,
) -> KeyAdvertisement:
    """Signs a member's keys for one run.

    Args:
        group: The members of the run.
        name: The member.
        identity: Its identity key.
        mask: Its key for masks.
        envelope: Its key for envelopes.

    Returns:
        The public keys with the signature.
    """
    keys = (mask.public_key().public_bytes_raw(), envelope.public_key().public_bytes_raw())
    return KeyAdvertisement(name, *keys, identity.sign(_key_content(group, name, *keys)))


def _key_content(group: SumGroup, name: str, mask: bytes, envelope: bytes) -> bytes:
    return words("card", group.run, name, mask.hex(), envelope.hex())


def check(group: SumGroup, advertisement: KeyAdvertisement) -> None:
    """Checks that a member signed these keys for this run, and that they are usable.

    Args:
        group: The members of the run.
        advertisement: The keys as they came.

    Raises:
        MemberRefusal: The signature is wrong, or nothing can be agreed with the keys.
    """
    name = advertisement.name
    content = _key_content(group, name, advertisement.mask, advertisement.envelope)
    if not verify_advertisement(group.identities.get(name, ""), advertisement.signature, content):
        raise MemberRefusal(
            f"The keys of {name} are not signed by it for this run; start again, or ask {name}.",
            RefusalCause.KEYS,
        )
    for key in (advertisement.mask, advertisement.envelope):
        agree(X25519PrivateKey.generate(), name, key)


def present(group: SumGroup, advertisements: Sequence[KeyAdvertisement]) -> SumGroup:
    """Restricts a group to the members who advertised keys.

    Args:
        group: All members of the run.
        advertisements: The keys as they came.

    Returns:
        The members who are there.

    Raises:
        MemberRefusal: Somebody else's keys are among them, or they are too few.
    """
    names = [advertisement.name for advertisement in advertisements]
    if len(set(names)) < len(names) or not set(names) <= set(group.names):
        raise MemberRefusal(
            "The advertised keys do not match the members one to one; start the run again.",
            RefusalCause.KEYS,
        )
    if len(names) < max(group.survivors, FEWEST):
        raise MemberRefusal(
            f"{len(names)} members advertised keys, of {group.survivors} needed; wait for more.",
            RefusalCause.TOO_FEW,
        )
    return group.among(names)


def session(group: SumGroup, advertisements: Sequence[KeyAdvertisement]) -> str:
    """Computes the digest of a run, its rules and all keys, after checking all keys.

    Every mask and signature is derived with it. Members who were shown different keys or rules
    have therefore nothing in common that a server could use.

    Args:
        group: The members who are there.
        advertisements: Their keys.

    Returns:
        The digest.

    Raises:
        MemberRefusal: The keys are not those of the members, each once and signed.
    """
    if sorted(each.name for each in advertisements) != list(group.names):
        raise MemberRefusal(
            "The advertised keys do not match the members one to one; start the run again.",
            RefusalCause.KEYS,
        )
    for advertisement in advertisements:
        check(group, advertisement)
    keys_of = {
        advertisement.name: [advertisement.mask.hex(), advertisement.envelope.hex()]
        for advertisement in advertisements
    }
    keys = [word for name in group.names for word in (name, group.identities[name], *keys_of[name])]
    return hashlib.sha256(
        words("session", group.run, group.survivors, group.colluders, *keys)
    ).hexdigest()


def verify_advertisement(identity: str, signature: bytes, content: bytes) -> bool:
    """Verifies a member's signature, of keys or of a list of survivors.

    Args:
        identity: The member's identity key (hexadecimal).
        signature: The signature.
        content: What was signed.

    Returns:
        Whether the member signed it.
    """
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(identity)).verify(signature, content)
        return True
    except (InvalidSignature, ValueError):
        return False


def agree(own: X25519PrivateKey, name: str, other: bytes) -> bytes:
    """Agrees on a secret that two members know and nobody else (X25519).

    Args:
        own: This member's key.
        name: The other member, for errors.
        other: The other member's public key.

    Returns:
        The secret.

    Raises:
        MemberRefusal: The other key is of low order, so that everybody would know the secret.
    """
    try:
        return own.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError:
        raise MemberRefusal(
            f"The key of {name} cannot be used for key agreement; {name} must make another.",
            RefusalCause.KEYS,
        ) from None
