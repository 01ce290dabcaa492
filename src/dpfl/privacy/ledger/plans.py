"""What was fixed beforehand: the most that a run could release, where how much it did follows what
came out.
"""

from __future__ import annotations

from dpfl.privacy.accounting.events import Event, add, add_all, decode, max_events
from dpfl.privacy.ledger.ledger import LAST_LINK, Ledger


def proven_events(ledger: Ledger, until: int = LAST_LINK) -> dict[Event, int]:
    """Every event with the count that proven epsilons are for: of each run what it made, or its
    plan where that is more. With `until`, as it stood at that link of the chain.

    A run of T <= T_max releases is a function of the run that makes all T_max, whatever stopped it.
    One that debited nothing here released nothing here, whatever it planned.
    """
    made: dict[str, dict[Event, int]] = {}
    for run, _, line, count, _ in ledger.debits(until):
        made[run] = add(made.get(run, {}), decode(line), count)
    plans, total = ledger.plans(), dict[Event, int]()
    for run, spent in made.items():
        total = add_all(total, max_events(spent, plans.get(run, {})))
    return total


def events_until(ledger: Ledger, until: int = LAST_LINK) -> dict[Event, int]:
    """Every event that was debited up to a link of the chain, with its count."""
    if until == LAST_LINK:
        return ledger.spending()
    total = dict[Event, int]()
    for _, _, line, count, _ in ledger.debits(until):
        total = add(total, decode(line), count)
    return total
