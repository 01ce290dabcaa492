"""Where randomness comes from: a key for experiments that can be repeated, the operating system for
real deployments.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np


class Randomness(Protocol):
    repeatable: bool

    def generator(self, purpose: str, round: int = 0, client: int = 0) -> np.random.Generator:
        """A generator for one purpose at one place of the run."""


@dataclass(frozen=True)
class Keyed:
    """A generator per (seed, epoch, scope, purpose, round, client), each with a 128-bit key of its
    own.

    `epoch` counts the runs that used the same ledger before: two runs on the same data never share
    their noise. `scope` names the value that the noise is for: other data or another model under
    the same round never share theirs either.
    """

    seed: int
    epoch: int = 0
    scope: str = ""
    repeatable = True

    def generator(self, purpose: str, round: int = 0, client: int = 0) -> np.random.Generator:
        text = json.dumps([self.seed, self.epoch, self.scope, purpose, round, client])
        key = hashlib.blake2b(text.encode(), digest_size=16).digest()
        return np.random.Generator(np.random.SFC64(int.from_bytes(key, "little")))


def with_scope(randomness: Randomness, scope: str) -> Randomness:
    """The same randomness for one released value; fresh entropy needs no scope."""
    return replace(randomness, scope=scope) if isinstance(randomness, Keyed) else randomness


@dataclass(frozen=True)
class SystemEntropy:
    """A fresh key from the operating system every time; nothing can be repeated, or predicted from
    a seed.
    """

    repeatable = False

    def generator(self, purpose: str, round: int = 0, client: int = 0) -> np.random.Generator:
        return np.random.Generator(np.random.SFC64(secrets.randbits(256)))
