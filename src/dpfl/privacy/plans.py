"""What was fixed beforehand: the most that a run could release, where how much it did follows what came out."""

from __future__ import annotations

from dpfl.privacy.events import Event, add, add_all, at_least, decode
from dpfl.privacy.ledger import Ledger


def bound(ledger: Ledger) -> dict[Event, int]:
    """Every event with the count that proven epsilons are for: of each run what it made, or its plan where that is more.

    A run of T <= T_max releases is a function of the run that makes all T_max, whatever stopped it. One that debited nothing
    here released nothing here, whatever it planned.
    """
    made: dict[str, dict[Event, int]] = {}
    for run, _, line, count, _ in ledger.debits():
        made[run] = add(made.get(run, {}), decode(line), count)
    plans, total = ledger.plans(), dict[Event, int]()
    for run, spent in made.items():
        total = add_all(total, at_least(spent, plans.get(run, {})))
    return total
