"""Samples that clients keep out of training, to measure on: each is drawn by itself, whoever else
is there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from dpfl.data.federation import Federation
from dpfl.errors import DpflError
from dpfl.lazy_import import torch


@dataclass(frozen=True, eq=False)
class HeldOutSplit:
    """What clients train on, what each of them keeps out of it, and how many units that is.

    Sizes are shares of declared ones: exact counts follow from the samples, and whoever is weighed
    or refused by them is told of these. A client may turn out to have none on either side.
    """

    trained: Sequence[torch.Tensor]
    kept: tuple[torch.Tensor, ...]
    sizes: tuple[int, ...]
    kept_sizes: tuple[int, ...]


def held_out(federation: Federation, share: float, unit: str = "sample") -> HeldOutSplit:
    """A unit is kept out by a hash of its own numbers.

    Where the unit is one row, a person's other rows must not move it: what is a neighbour would not
    be one afterwards.
    """
    declared = federation.count_units(unit)
    if not share:
        return HeldOutSplit(federation.clients, (), declared, ())
    if federation.described:
        raise DpflError(
            "Clients that are drawn share samples, so none of them can keep some out of training."
        )
    kept_sizes = tuple(round(share * size) for size in declared)
    sizes = tuple(size - kept for size, kept in zip(declared, kept_sizes, strict=True))
    for name, one, other in zip(federation.names, kept_sizes, sizes, strict=True):
        if min(one, other) < 2:
            raise DpflError(
                f"{name} has too few samples to keep {share:g} of them out of training: change "
                "metrics.held_out, or give 0."
            )
    firsts = [
        _first_rows(federation, part) if unit == "person" else part for part in federation.clients
    ]
    chosen = [
        torch.tensor([_draw(federation, int(row)) < share for row in first]) for first in firsts
    ]
    kept = tuple(part[these] for part, these in zip(federation.clients, chosen, strict=True))
    trained = tuple(part[~these] for part, these in zip(federation.clients, chosen, strict=True))
    return HeldOutSplit(trained, kept, sizes, kept_sizes)


def _first_rows(federation: Federation, part: torch.Tensor) -> torch.Tensor:
    """For each row the first of the same person at that client, by which all of theirs are
    drawn.
    """
    if federation.persons is None:
        raise DpflError("Whose each row is nobody said, but the unit is a person: set data.person.")
    _, whose = torch.unique(federation.persons[part], return_inverse=True)
    first = torch.full((int(whose.max()) + 1,), len(part)).scatter_reduce_(
        0, whose, torch.arange(len(part)), "amin"
    )
    return part[first[whose]]


def _draw(federation: Federation, row: int) -> float:
    """From 0 to 1."""
    digest = hashlib.blake2b(digest_size=8, key=b"dpfl held out")
    for tensor in (federation.train.x, federation.train.y):
        digest.update(tensor[row].contiguous().numpy().tobytes())
    return int.from_bytes(digest.digest(), "big") / 2**64
