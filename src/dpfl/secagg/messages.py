"""The messages between members and the server, step by step. Each receiver checks a message before
it trusts anything in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from dpfl.deprecation import keep_old_names
from dpfl.errors import DpflError


class RefusalCause(StrEnum):
    """The reason why a member refuses. The values go over the wire."""

    KEYS = "bad-keys"
    NO_KEYS = "no-keys"
    OVER = "sum-over"
    SURVIVORS = "bad-survivors"
    OTHER_SURVIVORS = "other-survivors"
    TOO_FEW = "too-few-survivors"
    VOTES = "too-few-votes"


class MemberRefusal(DpflError):
    """A member, or the server, was asked for what it will not do. It has revealed nothing."""

    def __init__(self, sentence: str, why: RefusalCause = RefusalCause.OVER) -> None:
        super().__init__(sentence)
        self.why = why


class RepeatSum(DpflError):
    """The sum cannot be opened. If it is repeated, masks and noise are fresh, and it is paid for
    again.
    """


def words(*parts: str | int) -> bytes:
    """Writes what keys and signatures are for, so that no two lists of parts read alike.

    Args:
        *parts: The parts.

    Returns:
        The bytes.
    """
    return json.dumps(["dpfl secure aggregation", *parts], separators=(",", ":")).encode()


@dataclass(frozen=True)
class SumId:
    """The name of one sum. Members who were asked for different things are at different sums.

    Attributes:
        session: The digest of the run, its members and their keys.
        round: The round.
        attempt: The place of the sum in its round, which may have sums of answers beside the sum of
            updates.
        terms: A digest of what is summed, and how.
    """

    session: str
    round: int
    attempt: int = 0
    terms: str = ""

    def __post_init__(self) -> None:
        if not all(type(number) is int and number >= 0 for number in self.place):
            raise MemberRefusal(
                "The round and the attempt of a sum must be whole numbers of at least 0."
            )

    @property
    def place(self) -> tuple[int, int]:
        """Round and attempt, which only grow."""
        return self.round, self.attempt

    def words(self, purpose: str, *parts: str) -> bytes:
        """Writes what a key or a signature of this sum is for.

        Args:
            purpose: The purpose.
            *parts: Further parts, such as names.

        Returns:
            The bytes.
        """
        return words(purpose, self.session, self.round, self.attempt, self.terms, *parts)


@dataclass(frozen=True)
class KeyAdvertisement:
    """Set-up, member to all: its X25519 keys for this run.

    Attributes:
        name: The member.
        mask: The key for masks.
        envelope: The key for envelopes.
        signature: The signature of the member's identity.
    """

    name: str
    mask: bytes
    envelope: bytes
    signature: bytes


@keep_old_names(at="sum_id")
@dataclass(frozen=True)
class MaskedInput:
    """Exchange 1, member to server (MaskedInputCollection).

    Attributes:
        sum_id: The sum.
        sender: The member.
        numbers: y_u, the masked numbers.
        envelopes: For each other member, sealed shares of every seed of the sender.
        digests: A digest of every seed, by the other member of the pair; the sender's own name
            stands for its own mask.
    """

    sum_id: SumId
    sender: str
    numbers: np.ndarray
    envelopes: Mapping[str, bytes]
    digests: Mapping[str, bytes]


@keep_old_names(at="sum_id")
@dataclass(frozen=True)
class SurvivorList:
    """Exchange 2, server to a survivor.

    Attributes:
        sum_id: The sum.
        survivors: The members whose numbers arrived (U3 in the paper).
        envelopes: What each of them sealed for this survivor.
    """

    sum_id: SumId
    survivors: tuple[str, ...]
    envelopes: Mapping[str, bytes]


@keep_old_names(at="sum_id")
@dataclass(frozen=True)
class SurvivorVote:
    """Exchange 2, back, if somebody is missing: the one list that this member supports, signed.

    Attributes:
        sum_id: The sum.
        sender: The member.
        signature: Its signature of the list.
    """

    sum_id: SumId
    sender: str
    signature: bytes


@keep_old_names(at="sum_id")
@dataclass(frozen=True)
class SurvivorVotes:
    """Exchange 3, server to a survivor (ConsistencyCheck).

    Attributes:
        sum_id: The sum.
        signatures: The signature of each member who voted.
    """

    sum_id: SumId
    signatures: Mapping[str, bytes]


@keep_old_names(at="sum_id")
@dataclass(frozen=True)
class UnmaskingShares:
    """The last answer of a member (Unmasking).

    Attributes:
        sum_id: The sum.
        sender: The member.
        seeds: Its own seeds with each missing member.
        shares: Its shares of other members' seeds, by owner and by the other member of the pair;
            the owner again for the owner's own mask.
    """

    sum_id: SumId
    sender: str
    seeds: Mapping[str, bytes]
    shares: Mapping[tuple[str, str], bytes]
