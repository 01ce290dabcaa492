"""Masks of different sums have nothing in common."""

from __future__ import annotations

from dpfl.secagg import (
    SumId,
)
from dpfl.secagg.masks import mask


def test_masks_of_other_bits_have_nothing_in_common():
    """Fault: halves of a number of 64 bits had the masks of two of 32, so that a server that tells
    one client to send these could take its masks away with the others' halves."""
    here, seed = SumId("session", 1), bytes(16)
    assert not set(mask(seed, here, 40, 32).tolist()) & set(
        mask(seed, here, 20, 64).view("<u4").tolist()
    )
