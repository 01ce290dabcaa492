"""Which accountant guards a run: the one that was asked for, or the tightest with a proof.

Noise is planned, prior spending is compared, and debits are limited by one and the same accountant.
So the choice is made here and nowhere else. It depends on how units are drawn and on nothing that
is planned later.
"""

from __future__ import annotations

from dpfl.privacy import Release
from dpfl.privacy.accounting.accountant import Accountant, default_accountant, proven_accountant
from dpfl.privacy.accounting.events import gaussian


def accountant_of(release: Release | None, population: int, name: str | None) -> Accountant:
    """Chooses the accountant that proves an epsilon.

    Args:
        release: The release, whose noise may still be open; None for an answer to a query, from
            which nothing is drawn.
        population: The number of units that the release samples from.
        name: The accountant that was asked for, or None.

    Returns:
        The accountant.

    Raises:
        DpflError: The accountant is unknown, or an approximation.
    """
    event = gaussian(1.0) if release is None else release.sampling.event(1.0, population)
    return proven_accountant(name or default_accountant(event))
