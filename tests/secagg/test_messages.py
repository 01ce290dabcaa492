"""The order of sums."""

from __future__ import annotations

import pytest

from dpfl.secagg import (
    MemberRefusal,
    SumId,
)


@pytest.mark.parametrize(
    "place", [(float("nan"), 0), (0, float("nan")), (1.5, 0), (True, 0), (-1, 0), ("7", 0)]
)
def test_a_round_that_is_no_whole_number_is_no_place_of_a_sum(place):
    """Fault: after a round that is not a number every round counted as later, so that masks of
    pairs were made twice.
    """
    with pytest.raises(MemberRefusal, match="whole numbers"):
        SumId("session", *place)
