"""The steps of a secure sum as fields and arrays of messages, and back.

The protocol is in `dpfl.secagg`. Its steps travel like this:

| step | kind of message to the node | kind of its answer |
|---|---|---|
| set-up: advertise keys | "card" | "card" |
| set-up: see all keys | "meet" | "met" |
| exchange 1: masked input | "work" | "masked" |
| exchange 2: survivors | "survivors" | "opened" (nobody is missing) or "vote" |
| exchange 3: votes of the others | "votes" | "opened" |

Members are in alphabetical order throughout, so that rows of bytes need no names. What does not fit
raises a `ProtocolError`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpfl.client.task import ClientTask
from dpfl.codec import canonical, tag_of
from dpfl.protocol.task_messages import task_to_words
from dpfl.protocol.value_forms import Form, list_of, refuse, text
from dpfl.protocol.wire_parts import MOST_MEMBERS
from dpfl.refusals import ProtocolError, RefusalReason
from dpfl.secagg import (
    KeyAdvertisement,
    MaskedInput,
    SumId,
    SurvivorList,
    SurvivorVotes,
    UnmaskingShares,
)
from dpfl.secagg.masks import DIGEST, SEED
from dpfl.secagg.shares import SHARE, envelope_bytes

Words = dict[str, Any]
Arrays = dict[str, np.ndarray]
KEY, SIGNATURE = 32, 64
"""Bytes of a key and of a signature."""
TURNS = ("query.histogram", "query.mean", "query.columns", "train", "query.metric")
"""The sums of one round, in order."""
names = list_of(text, MOST_MEMBERS)
"""The form of a list of members."""


def sum_id_of(task: ClientTask, session: str, model: np.ndarray) -> SumId:
    """Names the sum that a task is for.

    The name covers all that the task says to every member alike, the model too. Members who were
    asked for different things are therefore at different sums, whose masks do not cancel.

    Args:
        task: A task of a secure sum.
        session: The session of the members' keys.
        model: The model that came with the task.

    Returns:
        The sum: its session, round, turn in the round, and a digest of its terms.
    """
    assert task.secure_sum is not None
    turn = TURNS.index(tag_of(task.query) if task.query else "train")
    common = replace(task, client=0, horizon=0, secure_sum=replace(task.secure_sum, weight=1.0))
    model_digest = hashlib.sha256(np.ascontiguousarray(model).data).digest()
    terms = canonical(task_to_words(common)) + model_digest
    return SumId(session, task.round, turn, hashlib.sha256(terms).hexdigest())


def _bytes(length: int) -> Form:
    """Makes the form of so many bytes, in hexadecimal digits."""

    def form(value: Any) -> bytes:
        if type(value) is not str or len(value) != 2 * length:
            refuse()
        try:
            return bytes.fromhex(value)
        except ValueError:
            raise ProtocolError(RefusalReason.BAD_WORDS) from None

    return form


def _rows(parts: Sequence[bytes], length: int) -> np.ndarray:
    """Makes an array with one row per part. Shorter parts, which are empty, are filled with
    zeros.
    """
    return np.frombuffer(b"".join(part.ljust(length, b"\0") for part in parts), np.uint8).reshape(
        len(parts), length
    )


def _parts(array: np.ndarray | None, count: int, length: int) -> list[bytes]:
    """Reads the parts of an array with one row each."""
    if array is None or array.dtype != np.uint8 or array.shape != (count, length):
        raise ProtocolError(RefusalReason.BAD_ARRAYS)
    return [row.tobytes() for row in array]


ADVERTISEMENT: Mapping[str, Form] = {
    "name": text,
    "mask": _bytes(KEY),
    "envelope": _bytes(KEY),
    "signature": _bytes(SIGNATURE),
}


def advertisement_to_words(advertisement: KeyAdvertisement) -> Words:
    """Writes the keys that a member advertises.

    Args:
        advertisement: The keys, signed by the member.

    Returns:
        The words.
    """
    return {
        "name": advertisement.name,
        "mask": advertisement.mask.hex(),
        "envelope": advertisement.envelope.hex(),
        "signature": advertisement.signature.hex(),
    }


def advertisement_from_words(words: Any) -> KeyAdvertisement:
    """Reads the keys that a member advertises. Their signature is checked by `dpfl.secagg`.

    Args:
        words: A value that came over a wire.

    Returns:
        The keys.

    Raises:
        ProtocolError: The words are no such keys.
    """
    if type(words) is not dict or words.keys() != ADVERTISEMENT.keys():
        refuse()
    return KeyAdvertisement(**{name: form(words[name]) for name, form in ADVERTISEMENT.items()})


advertisements = list_of(advertisement_from_words, MOST_MEMBERS)
"""The form of a list of advertised keys."""


def input_to_arrays(masked_input: MaskedInput) -> Arrays:
    """Writes exchange 1, from a member.

    Args:
        masked_input: The masked numbers, the sealed shares and the digests.

    Returns:
        The arrays.
    """
    members = len(masked_input.digests)
    envelopes = [masked_input.envelopes[name] for name in sorted(masked_input.envelopes)]
    digests = [masked_input.digests[name] for name in sorted(masked_input.digests)]
    return {
        "numbers": masked_input.numbers,
        "envelopes": _rows(envelopes, envelope_bytes(members)),
        "digests": _rows(digests, DIGEST),
    }


def input_from_arrays(
    arrays: Mapping[str, np.ndarray], sum_id: SumId, sender: str, members: Sequence[str]
) -> MaskedInput:
    """Reads exchange 1, at the server.

    Args:
        arrays: The arrays of the message.
        sum_id: The sum.
        sender: The member who sent it.
        members: All members in alphabetical order.

    Returns:
        The masked numbers, the sealed shares and the digests.

    Raises:
        ProtocolError: The arrays are not those of exchange 1.
    """
    if arrays.keys() != {"numbers", "envelopes", "digests"} or arrays["numbers"].dtype.kind != "u":
        raise ProtocolError(RefusalReason.BAD_ARRAYS)
    others, count = [name for name in members if name != sender], len(members)
    envelopes = _parts(arrays["envelopes"], len(others), envelope_bytes(count))
    digests = _parts(arrays["digests"], count, DIGEST)
    return MaskedInput(
        sum_id,
        sender,
        arrays["numbers"],
        dict(zip(others, envelopes, strict=True)),
        dict(zip(members, digests, strict=True)),
    )


def survivors_to_fields(survivors: SurvivorList, members: int) -> tuple[Words, Arrays]:
    """Writes exchange 2, to a member.

    Args:
        survivors: The survivors, and what they sealed for this member.
        members: How many members the group has.

    Returns:
        The fields and the arrays.
    """
    envelopes = [survivors.envelopes[name] for name in sorted(survivors.envelopes)]
    arrays = {"envelopes": _rows(envelopes, envelope_bytes(members))}
    return {"survivors": list(survivors.survivors)}, arrays


def survivors_from_fields(
    words: Any, arrays: Mapping[str, np.ndarray], sum_id: SumId, name: str, members: int
) -> SurvivorList:
    """Reads exchange 2, at a member.

    Args:
        words: The list of survivors as it came.
        arrays: The arrays of the message.
        sum_id: The sum that is under way.
        name: This member.
        members: How many members the group has.

    Returns:
        The survivors, and what they sealed for this member.

    Raises:
        ProtocolError: The message is not that of exchange 2.
    """
    survivors = names(words)
    others = sorted(other for other in survivors if other != name)
    if arrays.keys() != {"envelopes"}:
        raise ProtocolError(RefusalReason.BAD_ARRAYS)
    rows = _parts(arrays["envelopes"], len(others), envelope_bytes(members))
    return SurvivorList(sum_id, survivors, dict(zip(others, rows, strict=True)))


signature = _bytes(SIGNATURE)
"""The form of a signature."""


def votes_to_words(votes: SurvivorVotes) -> Words:
    """Writes exchange 3, to a member.

    Args:
        votes: The signatures of all who voted.

    Returns:
        The words.
    """
    return {"votes": {name: signature.hex() for name, signature in votes.signatures.items()}}


def votes_from_words(words: Any, sum_id: SumId) -> SurvivorVotes:
    """Reads exchange 3, at a member. The signatures are checked by `dpfl.secagg`.

    Args:
        words: The votes as they came.
        sum_id: The sum that is under way.

    Returns:
        The votes.

    Raises:
        ProtocolError: The words are no votes.
    """
    if type(words) is not dict or len(words) > MOST_MEMBERS:
        refuse()
    signatures = {text(name): signature(value) for name, value in words.items()}
    return SurvivorVotes(sum_id, signatures)


def shares_to_fields(shares: UnmaskingShares) -> tuple[Words, Arrays]:
    """Writes the last answer of a member.

    It has the member's own seeds with the missing, and shares: of each owner whose envelope the
    member could open, a share of the owner's own seed and of its seeds with the missing.

    Args:
        shares: What the member reveals.

    Returns:
        The fields and the arrays.
    """
    missing, owners = sorted(shares.seeds), sorted({owner for owner, _ in shares.shares})
    rows = [shares.shares[owner, other] for owner in owners for other in (owner, *missing)]
    arrays = {
        "seeds": _rows([shares.seeds[name] for name in missing], SEED),
        "shares": _rows(rows, SHARE),
    }
    return {"kind": "opened", "owners": owners, "missing": missing}, arrays


def shares_from_fields(
    head: Mapping[str, Any], arrays: Mapping[str, np.ndarray], sum_id: SumId, sender: str
) -> UnmaskingShares:
    """Reads the last answer of a member, at the server.

    Args:
        head: The fields of the message.
        arrays: The arrays of the message.
        sum_id: The sum.
        sender: The member who sent it.

    Returns:
        What the member reveals.

    Raises:
        ProtocolError: The message is not that answer.
    """
    owners, missing = names(head.get("owners")), names(head.get("missing"))
    if arrays.keys() != {"seeds", "shares"}:
        raise ProtocolError(RefusalReason.BAD_ARRAYS)
    seeds = _parts(arrays["seeds"], len(missing), SEED)
    rows = _parts(arrays["shares"], len(owners) * (1 + len(missing)), SHARE)
    pairs = [(owner, other) for owner in owners for other in (owner, *missing)]
    return UnmaskingShares(
        sum_id,
        sender,
        dict(zip(missing, seeds, strict=True)),
        dict(zip(pairs, rows, strict=True)),
    )
