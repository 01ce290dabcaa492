"""What members and server tell each other. Nothing here is trusted before a member has checked
it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from dpfl.errors import DpflError


class RefusalCause(StrEnum):
    """Why a member refuses, in a word."""

    KEYS = "bad-keys"
    NO_KEYS = "no-keys"
    OVER = "sum-over"
    SURVIVORS = "bad-survivors"
    OTHER_SURVIVORS = "other-survivors"
    TOO_FEW = "too-few-survivors"
    VOTES = "too-few-votes"


class MemberRefusal(DpflError):
    """Somebody was asked for what it will not do; it has told nothing."""

    def __init__(self, sentence: str, why: RefusalCause = RefusalCause.OVER) -> None:
        super().__init__(sentence)
        self.why = why


class RepeatSum(DpflError):
    """The sum cannot be opened: it is made again, with fresh masks and fresh noise, and paid for
    again, or not at all.
    """


def words(*parts: str | int) -> bytes:
    """One spelling for keys and signatures, so that no two lists of parts read alike."""
    return json.dumps(["dpfl secure aggregation", *parts], separators=(",", ":")).encode()


@dataclass(frozen=True)
class SumId:
    """One sum: of a session (a run with its members and their keys), a round, an attempt at it, and
    what is summed on which `terms`: members who were asked for other things are at other sums.
    """

    session: str
    round: int
    attempt: int = 0
    terms: str = ""

    def __post_init__(self) -> None:
        if not all(type(number) is int and number >= 0 for number in self.place):
            raise MemberRefusal(
                "The round and the attempt of a sum are whole numbers, from 0; what is not has no "
                "order."
            )

    @property
    def place(self) -> tuple[int, int]:
        return self.round, self.attempt

    def words(self, purpose: str, *parts: str) -> bytes:
        return words(purpose, self.session, self.round, self.attempt, self.terms, *parts)


@dataclass(frozen=True)
class KeyAdvertisement:
    """Set-up, member to all: its keys for masks and envelopes (X25519) in this run, signed by its
    identity.
    """

    name: str
    mask: bytes
    envelope: bytes
    signature: bytes


@dataclass(frozen=True)
class MaskedInput:
    """Exchange 1, member to server: the masked numbers, an envelope for every other member, and a
    digest of every seed.
    """

    at: SumId
    sender: str
    numbers: np.ndarray
    envelopes: Mapping[str, bytes]
    digests: Mapping[str, bytes]


@dataclass(frozen=True)
class SurvivorList:
    """Exchange 2, server to a survivor: whose numbers arrived (Bonawitz et al.: U3), and what they
    sent for it.
    """

    at: SumId
    survivors: tuple[str, ...]
    envelopes: Mapping[str, bytes]


@dataclass(frozen=True)
class SurvivorVote:
    """Exchange 2, back, where somebody is missing: the one list of survivors that this member has
    seen, signed.
    """

    at: SumId
    sender: str
    signature: bytes


@dataclass(frozen=True)
class SurvivorVotes:
    """Exchange 3, server to a survivor: the signatures of the others."""

    at: SumId
    signatures: Mapping[str, bytes]


@dataclass(frozen=True)
class UnmaskingShares:
    """The last answer of a member: its seeds with the missing, and its shares of others' seeds, by
    owner and by the other of the pair (the owner again, for the owner's own mask).
    """

    at: SumId
    sender: str
    seeds: Mapping[str, bytes]
    shares: Mapping[tuple[str, str], bytes]
