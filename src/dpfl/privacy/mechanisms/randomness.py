"""Sources of randomness: a key for repeatable experiments, the operating system for deployments."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np


class Randomness(Protocol):
    """A source of generators, one for each purpose and place of a run.

    Attributes:
        repeatable: Whether the same arguments give the same numbers again.
    """

    repeatable: bool

    def generator(self, purpose: str, round: int = 0, client: int = 0) -> np.random.Generator:
        """Makes the generator for one purpose at one place of the run.

        Args:
            purpose: What the numbers are for. No two purposes share numbers.
            round: The round.
            client: The client.

        Returns:
            A generator.
        """

    def in_epoch(self, epoch: int) -> Randomness:
        """Moves the source to a run's epoch.

        Args:
            epoch: How many runs used the same ledger before.

        Returns:
            The source for that run.
        """


@dataclass(frozen=True)
class Keyed(Randomness):
    """Generators that are keyed by (seed, epoch, scope, purpose, round, client), 128 bits each.

    Attributes:
        seed: The seed of the experiment.
        epoch: How many runs used the same ledger before. Two runs on the same data never share
            noise.
        scope: The value that the noise is for. Other data or another model in the same round never
            shares it.
    """

    seed: int
    epoch: int = 0
    scope: str = ""
    repeatable = True

    def in_epoch(self, epoch: int) -> Keyed:
        return replace(self, epoch=epoch)

    def generator(self, purpose: str, round: int = 0, client: int = 0) -> np.random.Generator:
        text = json.dumps([self.seed, self.epoch, self.scope, purpose, round, client])
        key = hashlib.blake2b(text.encode(), digest_size=16).digest()
        return np.random.Generator(np.random.SFC64(int.from_bytes(key, "little")))


def with_scope(randomness: Randomness, scope: str) -> Randomness:
    """Narrows a source of randomness to one released value.

    Args:
        randomness: The source.
        scope: The name of the released value.

    Returns:
        The source for that value. Fresh entropy needs no scope and stays as it is.
    """
    return replace(randomness, scope=scope) if isinstance(randomness, Keyed) else randomness


@dataclass(frozen=True)
class SystemEntropy(Randomness):
    """A fresh key from the operating system every time, so nothing can be repeated or predicted."""

    repeatable = False

    def in_epoch(self, epoch: int) -> SystemEntropy:
        return self

    def generator(self, purpose: str, round: int = 0, client: int = 0) -> np.random.Generator:
        return np.random.Generator(np.random.SFC64(secrets.randbits(256)))
