"""Sizes of a group that are accepted, and its threshold."""

from __future__ import annotations

import pytest

from dpfl.errors import DpflError
from dpfl.secagg.group import check_sizes, threshold


def test_groups_have_3_to_100_members_and_a_threshold_above_half_of_them_and_the_colluders():
    for sizes in ((3, 2, 0), (100, 51, 0), (100, 100, 98), (10, 7, 2), (5, 4, 1)):
        check_sizes(*sizes)
    for sizes in (
        (2, 2, 0),
        (101, 60, 0),
        (100, 50, 0),
        (10, 6, 2),
        (5, 3, 1),
        (5, 6, 0),
        (5, 5, -1),
    ):
        with pytest.raises(DpflError):
            check_sizes(*sizes)
    for members in range(3, 101):
        for colluders in range(members):
            least = threshold(members, colluders)
            assert 2 * least > members + colluders >= 2 * (least - 1)
