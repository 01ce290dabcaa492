"""What members of a secure sum and its server tell each other, as words and arrays of letters; odd
ones are `Bad`.

Names are in the order of the alphabet throughout, so that rows of bytes need none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpfl.client.task import ClientTask
from dpfl.codec import canonical, tag_of
from dpfl.protocol.task_messages import MOST_MEMBERS, Form, listed, refuse, task_to_words, text
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
TURNS = ("query.histogram", "query.mean", "query.columns", "train", "query.metric")
"""Sums of one round, one after another."""
names = listed(text, MOST_MEMBERS)


def at_of(task: ClientTask, session: str, model: np.ndarray) -> SumId:
    """The sum that a task is for: of its round, its turn there, and all that it says to every
    member alike, the model too.
    """
    assert task.secure_sum is not None
    turn = TURNS.index(tag_of(task.query) if task.query else "train")
    alike = replace(task, client=0, horizon=0, secure_sum=replace(task.secure_sum, weight=1.0))
    told = (
        canonical(task_to_words(alike)) + hashlib.sha256(np.ascontiguousarray(model).data).digest()
    )
    return SumId(session, task.round, turn, hashlib.sha256(told).hexdigest())


def _bytes(length: int) -> Form:
    def found(value: Any) -> bytes:
        if type(value) is not str or len(value) != 2 * length:
            refuse()
        try:
            return bytes.fromhex(value)
        except ValueError:
            raise ProtocolError(RefusalReason.BAD_WORDS) from None

    return found


def _rows(parts: Sequence[bytes], length: int) -> np.ndarray:
    """Shorter ones, which are nothing, as zeros."""
    return np.frombuffer(b"".join(part.ljust(length, b"\0") for part in parts), np.uint8).reshape(
        len(parts), length
    )


def _of_rows(array: np.ndarray | None, count: int, length: int) -> list[bytes]:
    if array is None or array.dtype != np.uint8 or array.shape != (count, length):
        raise ProtocolError(RefusalReason.BAD_ARRAYS)
    return [row.tobytes() for row in array]


CARD: Mapping[str, Form] = {
    "name": text,
    "mask": _bytes(KEY),
    "envelope": _bytes(KEY),
    "signature": _bytes(SIGNATURE),
}


def card_to_words(card: KeyAdvertisement) -> Words:
    return {
        "name": card.name,
        "mask": card.mask.hex(),
        "envelope": card.envelope.hex(),
        "signature": card.signature.hex(),
    }


def card_from_words(words: Any) -> KeyAdvertisement:
    if type(words) is not dict or words.keys() != CARD.keys():
        refuse()
    return KeyAdvertisement(**{name: form(words[name]) for name, form in CARD.items()})


cards = listed(card_from_words, MOST_MEMBERS)


def masked_arrays(masked: MaskedInput) -> Arrays:
    """Exchange 1, to the server."""
    members = len(masked.digests)
    envelopes = [masked.envelopes[name] for name in sorted(masked.envelopes)]
    digests = [masked.digests[name] for name in sorted(masked.digests)]
    return {
        "numbers": masked.numbers,
        "envelopes": _rows(envelopes, envelope_bytes(members)),
        "digests": _rows(digests, DIGEST),
    }


def masked_from(
    arrays: Mapping[str, np.ndarray], at: SumId, sender: str, members: Sequence[str]
) -> MaskedInput:
    if arrays.keys() != {"numbers", "envelopes", "digests"} or arrays["numbers"].dtype.kind != "u":
        raise ProtocolError(RefusalReason.BAD_ARRAYS)
    others, count = [name for name in members if name != sender], len(members)
    envelopes = _of_rows(arrays["envelopes"], len(others), envelope_bytes(count))
    digests = _of_rows(arrays["digests"], count, DIGEST)
    return MaskedInput(
        at,
        sender,
        arrays["numbers"],
        dict(zip(others, envelopes, strict=True)),
        dict(zip(members, digests, strict=True)),
    )


def shown_to(shown: SurvivorList, members: int) -> tuple[Words, Arrays]:
    """Exchange 2, to a member."""
    envelopes = [shown.envelopes[name] for name in sorted(shown.envelopes)]
    return {"survivors": list(shown.survivors)}, {
        "envelopes": _rows(envelopes, envelope_bytes(members))
    }


def shown_from(
    words: Any, arrays: Mapping[str, np.ndarray], at: SumId, name: str, members: int
) -> SurvivorList:
    survivors = names(words)
    others = sorted(other for other in survivors if other != name)
    if arrays.keys() != {"envelopes"}:
        raise ProtocolError(RefusalReason.BAD_ARRAYS)
    rows = _of_rows(arrays["envelopes"], len(others), envelope_bytes(members))
    return SurvivorList(at, survivors, dict(zip(others, rows, strict=True)))


signature = _bytes(SIGNATURE)


def votes_to_words(votes: SurvivorVotes) -> Words:
    """Exchange 3, to a member."""
    return {"votes": {name: signature.hex() for name, signature in votes.signatures.items()}}


def votes_from_words(words: Any, at: SumId) -> SurvivorVotes:
    if type(words) is not dict or len(words) > MOST_MEMBERS:
        refuse()
    return SurvivorVotes(at, {text(name): signature(signed) for name, signed in words.items()})


def opened_to(opened: UnmaskingShares) -> tuple[Words, Arrays]:
    """The last of a member: its own seeds with the missing, and of each owner whose envelope it
    could open a share of the owner's own seed and of its seeds with the missing."""
    missing, owners = sorted(opened.seeds), sorted({owner for owner, _ in opened.shares})
    shares = [opened.shares[owner, other] for owner in owners for other in (owner, *missing)]
    arrays = {
        "seeds": _rows([opened.seeds[name] for name in missing], SEED),
        "shares": _rows(shares, SHARE),
    }
    return {"kind": "opened", "owners": owners, "missing": missing}, arrays


def opened_from(
    head: Mapping[str, Any], arrays: Mapping[str, np.ndarray], at: SumId, sender: str
) -> UnmaskingShares:
    owners, missing = names(head.get("owners")), names(head.get("missing"))
    if arrays.keys() != {"seeds", "shares"}:
        raise ProtocolError(RefusalReason.BAD_ARRAYS)
    seeds = _of_rows(arrays["seeds"], len(missing), SEED)
    shares = _of_rows(arrays["shares"], len(owners) * (1 + len(missing)), SHARE)
    pairs = [(owner, other) for owner in owners for other in (owner, *missing)]
    return UnmaskingShares(
        at, sender, dict(zip(missing, seeds, strict=True)), dict(zip(pairs, shares, strict=True))
    )
