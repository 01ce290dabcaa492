"""The most that runs could release, fixed before training, where the number of releases depends on
what was released.

A run of T <= T_max releases is a function of the run that makes all T_max, whatever stopped it
(post-processing). So an epsilon for T_max releases holds for it. One for T releases would not: T
depends on private data.
"""

from __future__ import annotations

from dpfl.privacy.accounting.events import Event, add, add_all, decode, max_events
from dpfl.privacy.ledger.ledger import LAST_LINK, Ledger


def proven_events(ledger: Ledger, until: int = LAST_LINK) -> dict[Event, int]:
    """Counts the events that proven epsilons are for: for each run its debits, or its plan if that
    is larger.

    A run that debited nothing here released nothing here, whatever it planned.

    Args:
        ledger: The ledger.
        until: The last link of the chain to read.

    Returns:
        The count of each event.
    """
    debits: dict[str, dict[Event, int]] = {}
    for run, _, line, count, _ in ledger.debits(until):
        debits[run] = add(debits.get(run, {}), decode(line), count)
    plans, total = ledger.plans(), dict[Event, int]()
    for run, events in debits.items():
        total = add_all(total, max_events(events, plans.get(run, {})))
    return total


def events_until(ledger: Ledger, until: int = LAST_LINK) -> dict[Event, int]:
    """Counts the events that were debited up to a link of the chain.

    Args:
        ledger: The ledger.
        until: The last link of the chain to read.

    Returns:
        The count of each event.
    """
    if until == LAST_LINK:
        return ledger.spending()
    total = dict[Event, int]()
    for _, _, line, count, _ in ledger.debits(until):
        total = add(total, decode(line), count)
    return total
