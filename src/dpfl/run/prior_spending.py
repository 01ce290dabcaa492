"""What the ledgers of a run hold before it starts: whether they are its own, and what they leave
room for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpfl.algorithms import Algorithm
from dpfl.client.noise_placement import NoisePlacement
from dpfl.data import Federation
from dpfl.privacy import Budget
from dpfl.privacy.accounting.accountant import accountant, default_accountant, proven_accountant
from dpfl.privacy.accounting.events import EventCounts, decode, encode
from dpfl.privacy.ledger.client_ledgers import FEDERATION, ClientLedgers, list_names
from dpfl.privacy.mechanisms.noise import Uncalibrated
from dpfl.privacy.statement import rounded_up


@dataclass(frozen=True)
class PriorSpending:
    """What noise is planned beside, and what is said of it."""

    spent: EventCounts = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def record(self) -> dict[str, int] | None:
        """For a run that goes on later: other runs may have spent by then, but its noise is what it
        was.
        """
        return {encode(event): count for event, count in self.spent.items()} or None

    @classmethod
    def recorded(cls, resolved: Mapping[str, Any]) -> PriorSpending:
        return cls({decode(line): count for line, count in resolved.get("beside", {}).items()})


def owners(algorithm: Algorithm, federation: Federation) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Who pays, and the digest of the data that is paid for."""
    if algorithm.ledger_per_client and not federation.described:
        held = (
            federation.by_person(federation.clients)
            if algorithm.unit == "person"
            else federation.holdings
        )
        return federation.names, held
    return (
        ((FEDERATION,), (federation.holding,))
        if algorithm.placement is NoisePlacement.ROUND_SUM
        else ((), ())
    )


def look(
    algorithm: Algorithm, federation: Federation, folder: Path, budget: Budget, by: str | None
) -> PriorSpending:
    """Refused where the folder's ledgers are not this run's; nothing is written."""
    names, data = owners(algorithm, federation)
    release = algorithm.release
    if release is None or not names:
        return PriorSpending()
    ledgers = ClientLedgers(
        folder,
        names,
        algorithm.unit,
        release.neighbours,
        data=data,
        public=_public(algorithm, federation),
    )
    ledgers.check()
    spent = ledgers.spending()
    if not any(spent) or budget.epsilon is None or algorithm.variant != "sound":
        return PriorSpending()
    chosen = proven_accountant(
        by or default_accountant(release.sampling.event(1.0, len(federation.sizes)))
    )
    figures = [
        (accountant(chosen.name).epsilon(events, budget.delta), number)
        for number, events in enumerate(spent)
    ]
    return _planned(names, spent, figures, budget.epsilon, isinstance(release.noise, Uncalibrated))


def _public(algorithm: Algorithm, federation: Federation) -> tuple[str, ...]:
    if algorithm.unit != "person":
        return federation.public_holdings
    return (*federation.public_holdings, *federation.by_person(federation.public))


def _planned(
    names: tuple[str, ...],
    spent: list[Any],
    figures: list[tuple[float, int]],
    epsilon: float,
    plans: bool,
) -> PriorSpending:
    over = [names[number] for figure, number in figures if figure >= epsilon]
    figure, fullest = max(
        ((figure, number) for figure, number in figures if figure < epsilon), default=(0.0, -1)
    )
    notes = [f"the budget of {list_names(over)} is used up: no part is taken"] if over else []
    if fullest < 0 or not spent[fullest]:
        return PriorSpending(notes=tuple(notes))
    said = f"{names[fullest]} has spent epsilon {rounded_up(figure):.4f} of {epsilon:g} before"
    if not plans:
        return PriorSpending(
            notes=(*notes, f"{said}: this run may end by epsilon before its rounds do")
        )
    return PriorSpending(spent[fullest], (*notes, f"{said}: noise is planned for what that leaves"))
