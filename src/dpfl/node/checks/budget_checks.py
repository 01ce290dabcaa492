"""Computes how much of a run fits into a node's limits, before anything is debited.

Both functions only read the ledger. The ledger asks the second question again, inside the
transaction that writes the debit; its answer is the one that counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpfl.privacy import Ledger
from dpfl.privacy.accounting.calibration import MAX_RELEASES, largest_count
from dpfl.privacy.accounting.events import Event, EventCounts, add_all
from dpfl.privacy.ledger.limit import Limit, SubLimit
from dpfl.protocol.proposal import Proposal


def affordable_releases(
    ledger: Ledger, run: str, proposal: Proposal, limit: Limit, sub_limits: Sequence[SubLimit]
) -> int:
    """Counts the run's releases, from its first on, that all limits leave room for.

    Args:
        ledger: The node's ledger.
        run: The run. What it has spent itself does not count here.
        proposal: What the run will release, in order.
        limit: The limit of all runs together.
        sub_limits: The limits per year and per run.

    Returns:
        The count, at most that of the proposal.
    """
    bounds: list[tuple[Limit, EventCounts]] = [(limit, ledger.spending(besides=run))]
    bounds += [
        (share.limit, {} if share.run else ledger.spending_within(share, besides=run))
        for share in sub_limits
    ]
    kinds, count = {event for event, _ in proposal.events}, min(proposal.most, MAX_RELEASES)
    if len(kinds) > 1:
        return largest_count(
            lambda releases: all(
                bound.covers(add_all(others, proposal.spending(releases)))
                for bound, others in bounds
            ),
            count,
        )
    for event in kinds:
        # The tightest limit first: the others then have one question to answer.
        for bound, others in sorted(bounds, key=lambda part: part[0].epsilon):
            count = bound.remaining(others, event, count) if count else 0
    return count


def is_affordable(
    ledger: Ledger,
    event: Event,
    count: int,
    limit: Limit,
    sub_limits: Sequence[SubLimit],
    horizon: int,
) -> bool:
    """Decides whether a debit would stay inside all limits now.

    Args:
        ledger: The node's ledger.
        event: The event of each release.
        count: How many releases are to be debited.
        limit: The limit of all runs together.
        sub_limits: The limits per year and per run.
        horizon: How many such releases the run has left, for accountants that compute ahead.

    Returns:
        Whether every limit allows the debit.
    """
    bounds = [(limit, ledger.spending())]
    bounds += [(share.limit, ledger.spending_within(share)) for share in sub_limits]
    return all(bound.allows(spending, event, count, horizon) for bound, spending in bounds)
