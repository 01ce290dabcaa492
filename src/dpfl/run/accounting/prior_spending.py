"""Reads what the ledgers of a run hold before it starts. The noise of the run is planned beside
these events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpfl.algorithms import Algorithm
from dpfl.client.noise_placement import NoisePlacement
from dpfl.data import Federation
from dpfl.planning.accountant_choice import accountant_of
from dpfl.privacy import Budget
from dpfl.privacy.accounting.events import EventCounts, decode, encode
from dpfl.privacy.ledger.client_ledgers import ClientLedgers, list_names
from dpfl.privacy.statement import rounded_up
from dpfl.privacy.units import protects_person
from dpfl.run.accounting.accounting_terms import ledger_owners


@dataclass(frozen=True)
class PriorSpending:
    """Events already spent when noise is calibrated, with notes for the statement.

    Attributes:
        events: The events of the fullest ledger that still has budget left.
        notes: What a person should know of ledgers that other runs used.
    """

    events: EventCounts = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def record(self) -> dict[str, int] | None:
        """Writes the events for the record of the run.

        A resumed run plans its noise beside these. Other runs may have spent more by then, but its
        noise must be what it was.

        Returns:
            The count of each event by its text; None if there are no events.
        """
        return {encode(event): count for event, count in self.events.items()} or None

    @classmethod
    def from_record(cls, resolved_section: Mapping[str, Any]) -> PriorSpending:
        """Reads the events back from the record of a run.

        Args:
            resolved_section: The section `resolved` of the run's `experiment.toml`.

        Returns:
            The events, without notes.
        """
        return cls(
            {decode(line): count for line, count in resolved_section.get("beside", {}).items()}
        )


def ledger_data(algorithm: Algorithm, federation: Federation) -> tuple[str, ...]:
    """Finds a digest of the data that each ledger of a run pays for.

    Args:
        algorithm: The algorithm, which says where the noise is.
        federation: The clients and their data.

    Returns:
        A digest per ledger; () where nothing is paid, or where the data is elsewhere.
    """
    if algorithm.placement is NoisePlacement.ROUND_SUM and not algorithm.ledger_per_client:
        return (federation.pooled_digest,)
    if not algorithm.ledger_per_client:
        return ()
    if protects_person(algorithm.unit):
        return federation.by_person(federation.clients)
    return federation.client_digests


def read_prior_spending(
    algorithm: Algorithm,
    federation: Federation,
    folder: Path | None,
    budget: Budget,
    accountant_name: str | None,
) -> PriorSpending:
    """Reads what other runs spent from the ledgers of a folder. Nothing is written.

    Args:
        algorithm: The algorithm, whose noise may still be open.
        federation: The clients and their data.
        folder: The folder of the ledgers; None if there is none yet.
        budget: The budget that the ledgers are compared with.
        accountant_name: The accountant that was asked for, or None.

    Returns:
        What noise is planned beside, with notes.

    Raises:
        DpflError: The folder's ledgers are not this run's.
    """
    names, release = ledger_owners(algorithm, federation.names), algorithm.release
    if algorithm.ledger_per_client and federation.described:
        return PriorSpending()  # such clients keep no ledgers, and `check_run` refuses the run
    if release is None or not names or folder is None:
        return PriorSpending()
    ledgers = ClientLedgers(
        folder,
        names,
        algorithm.unit,
        release.neighbours,
        data=ledger_data(algorithm, federation),
        public=_public_data(algorithm, federation),
    )
    ledgers.check()
    totals = ledgers.spending()
    if not any(totals) or budget.epsilon is None or not algorithm.sound:
        return PriorSpending()
    by = accountant_of(release, len(federation.sizes), accountant_name)
    epsilons = [by.epsilon(events, budget.delta) for events in totals]
    return _beside_fullest(names, totals, epsilons, budget.epsilon, release.uncalibrated)


def _public_data(algorithm: Algorithm, federation: Federation) -> tuple[str, ...]:
    if not protects_person(algorithm.unit):
        return federation.public_client_digests
    return (*federation.public_client_digests, *federation.by_person(federation.public))


def _beside_fullest(
    names: Sequence[str],
    totals: Sequence[EventCounts],
    epsilons: Sequence[float],
    limit: float,
    to_plan: bool,
) -> PriorSpending:
    """Chooses the fullest ledger that still has budget left. Ledgers over budget take no part."""
    over = [name for name, epsilon in zip(names, epsilons, strict=True) if epsilon >= limit]
    notes = [f"the budget of {list_names(over)} is used up, so they take no part"] if over else []
    numbers = [number for number, epsilon in enumerate(epsilons) if epsilon < limit]
    fullest = max(numbers, key=lambda number: (epsilons[number], number), default=None)
    if fullest is None or not totals[fullest]:
        return PriorSpending(notes=tuple(notes))
    epsilon = rounded_up(epsilons[fullest])
    before = f"{names[fullest]} has spent epsilon {epsilon:.4f} of {limit:g} before"
    if not to_plan:
        end = f"{before}: this run may end by epsilon before its rounds do"
        return PriorSpending(notes=(*notes, end))
    note = f"{before}: noise is planned for what that leaves"
    return PriorSpending(totals[fullest], (*notes, note))
