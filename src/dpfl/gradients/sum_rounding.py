"""Bounds how many units one float64 sum may have before its rounding exceeds what the clip leaves
for it.

Units are clipped to C (1 - MARGIN). Half of the margin C * MARGIN covers the rounding of the sums
over two neighbouring batches, so the number of units in a batch is limited (docs/privacy.md,
"Float arithmetic").
"""

from __future__ import annotations

import math

from dpfl.errors import DpflError
from dpfl.privacy.mechanisms.clips.clip import MARGIN
from dpfl.privacy.mechanisms.clips.rounding import DOUBLE, TERMS, gamma

WEIGHING = 2
"""Roundings of one term in float64: its clip factor times one number, and that times the other."""


def check_units(units: int, additions: int, cancellation: float = 1.0) -> None:
    """Refuses a sum of more units than the margin of the clip covers.

    Args:
        units: The number of units in the sum.
        additions: The largest number of partial sums that are added up within one chunk.
        cancellation: A bound on the summed length of a clipped unit's terms over the clip norm.

    Raises:
        DpflError: The sum could be wrong by more than half of the margin.
    """
    if units > most_units(cancellation, additions + WEIGHING):
        raise DpflError(
            f"A batch of {units} units is too large to sum within the margin of the clip; lower "
            "the rate q."
        )


def most_units(cancellation: float, additions: int = 0) -> float:
    """Computes the largest number of units for which two neighbouring sums round within half of the
    margin.

    A chunk's sum is wrong by at most gamma_n times the summed length of its terms, with
    n = TERMS + max(TERMS, additions). The sums of chunks are added one by one. There are as many
    of them as units where each unit is computed alone, which adds an error of gamma_B times the
    length of all B units. So B is the positive root of

        2 B (gamma_n a + gamma_B) = MARGIN / 2.

    Args:
        cancellation: A bound a on the summed length of a clipped unit's terms over the clip norm.
        additions: How often a partial sum of `TERMS` terms is rounded afterwards in its chunk.

    Returns:
        B, as a real number.
    """
    product = gamma(TERMS + max(TERMS, additions), DOUBLE) * cancellation
    addition = DOUBLE * (1 + 2.0**-20)
    return (math.sqrt(product**2 + addition * MARGIN) - product) / (2 * addition)
