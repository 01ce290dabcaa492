"""Samples that clients keep out of training, to measure on. Each unit is drawn by a hash of its own
numbers, so it does not matter who else is there.
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
    """The rows that clients train on, and those that they keep out of training.

    Sizes are shares of the declared sizes. Exact counts would follow from the samples, and a weight
    or a refusal by them would reveal something. A client may turn out to have no samples on one of
    the two sides.

    Attributes:
        training_rows: For each client the rows of the training set that it trains on.
        held_out_rows: For each client the rows that it measures on; () where nothing is kept out.
        sizes: The declared units of each client for training.
        held_out_sizes: The declared units of each client for measuring.
    """

    training_rows: Sequence[torch.Tensor]
    held_out_rows: tuple[torch.Tensor, ...]
    sizes: tuple[int, ...]
    held_out_sizes: tuple[int, ...]


def split_held_out(federation: Federation, share: float, unit: str = "sample") -> HeldOutSplit:
    """Keeps a share of every client's units out of training.

    A unit is kept out by a hash of its own numbers, so data sets that were neighbours stay
    neighbours. Where the unit is one sample, the other rows of the same person have no influence.
    Where the unit is a person, the first of their rows at a client decides for all of them.

    Args:
        federation: The clients and their data.
        share: The expected share of units to keep out, from 0 to 1.
        unit: "sample", "person" or "client".

    Returns:
        Both sides of the split.

    Raises:
        DpflError: Clients are drawn from a population, and so share samples; or a client has too
            few samples for both sides.
    """
    declared_sizes = federation.count_units(unit)
    if not share:
        return HeldOutSplit(federation.clients, (), declared_sizes, ())
    if federation.described:
        raise DpflError(
            "Clients that are drawn share samples, so none of them can keep some out of training."
        )
    held_out_sizes = tuple(round(share * size) for size in declared_sizes)
    sizes = tuple(size - out for size, out in zip(declared_sizes, held_out_sizes, strict=True))
    for name, one, other in zip(federation.names, held_out_sizes, sizes, strict=True):
        if min(one, other) < 2:
            raise DpflError(
                f"{name} has too few samples to keep {share:g} of them out of training: change "
                "metrics.held_out, or give 0."
            )
    firsts = [
        _first_rows(federation, part) if unit == "person" else part for part in federation.clients
    ]
    masks = [
        torch.tensor([_draw(federation, int(row)) < share for row in first]) for first in firsts
    ]
    pairs = list(zip(federation.clients, masks, strict=True))
    return HeldOutSplit(
        tuple(part[~mask] for part, mask in pairs),
        tuple(part[mask] for part, mask in pairs),
        sizes,
        held_out_sizes,
    )


def _first_rows(federation: Federation, part: torch.Tensor) -> torch.Tensor:
    """Finds for each row the first row of the same person at that client, which decides for all of
    them.
    """
    if federation.persons is None:
        raise DpflError(
            'privacy.unit is "person", but data.person is not declared: name the column of persons.'
        )
    _, whose = torch.unique(federation.persons[part], return_inverse=True)
    first = torch.full((int(whose.max()) + 1,), len(part)).scatter_reduce_(
        0, whose, torch.arange(len(part)), "amin"
    )
    return part[first[whose]]


def _draw(federation: Federation, row: int) -> float:
    """Computes a number from 0 to 1 from the numbers of one row."""
    digest = hashlib.blake2b(digest_size=8, key=b"dpfl held out")
    for tensor in (federation.train.x, federation.train.y):
        digest.update(tensor[row].contiguous().numpy().tobytes())
    return int.from_bytes(digest.digest(), "big") / 2**64
