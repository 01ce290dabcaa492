"""A secure sum among real members, as the game of masks plays it."""

import numpy as np
import pytest

from dpfl.audit.checks.mask_checks import BY_CHANCE, MaskedExchange, masks
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares

SHARED = NoiseShares(3, 1)


def test_the_masks_of_a_sound_sum_show_nothing() -> None:
    check = masks(SHARED)
    assert check.faults == ()
    assert "masked at every place" in check.summary


@pytest.mark.parametrize("absent", [0, 1])
def test_members_add_up_what_is_left(absent: int) -> None:
    meeting = MaskedExchange(SHARED)
    numbers = np.arange(64, dtype=np.uint32)
    sum, inputs = meeting.begin(0, absent, numbers)
    assert len(inputs) == len(meeting.members) - absent
    assert all((masked.numbers == numbers).sum() <= BY_CHANCE for masked in inputs)
    total, opened = meeting.end(sum)
    assert (total == numbers * np.uint32(len(inputs))).all()
    assert all(seed is not None for seed in meeting.own_seeds(opened))
