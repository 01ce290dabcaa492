"""The terms that a run's accounts use: fixed before the first round, and recorded with the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpfl import codec
from dpfl.algorithms import Algorithm
from dpfl.client.noise_placement import NoisePlacement
from dpfl.data.names import client_names
from dpfl.data.remote_federation import NODES
from dpfl.privacy import Budget, Limit
from dpfl.privacy.accounting.calibration import MAX_RELEASES
from dpfl.privacy.ledger.client_ledgers import FEDERATION
from dpfl.run.records.record_file import recorded_names


def ledger_owners(algorithm: Algorithm, names: Sequence[str]) -> Sequence[str]:
    """Finds whose ledgers pay for the releases of a run.

    Args:
        algorithm: The algorithm, which says where the noise is.
        names: The names of the clients.

    Returns:
        The clients, the federation, or nobody where nothing is paid.
    """
    if algorithm.ledger_per_client:
        return names
    return (FEDERATION,) if algorithm.placement is NoisePlacement.ROUND_SUM else ()


@dataclass(frozen=True)
class AccountingTerms:
    """The algorithm, the budget and the public facts that every figure of a run follows from.

    `resolve` works them out before a run. `AccountingTerms.from_record` reads them back from the
    run's record, so a certificate counts by the same terms as the run did.

    Attributes:
        algorithm: The algorithm as it runs, with planned noise.
        budget: The budget of the run.
        accountant: The name of the accountant, or "none" without noise.
        declared_sizes: The size that each client declares, in units of the guarantee.
        names: The names of the clients; () for the default names.
        data: A digest of the data that each ledger pays for; () where the data is elsewhere.
        row_notes: What the statement says of persons behind the rows.
        arithmetic: How the units of private steps are computed, in words.
        over_nodes: Whether these accounts are the server's own count of the tasks that it sent. The
            nodes that paid have ledgers of their own.
    """

    algorithm: Algorithm
    budget: Budget
    accountant: str
    declared_sizes: Sequence[int]
    names: Sequence[str] = ()
    data: Sequence[str] = ()
    row_notes: Sequence[str] = ()
    arithmetic: str = ""
    over_nodes: bool = False

    @classmethod
    def from_record(cls, record: Mapping[str, Any], algorithm: Algorithm) -> AccountingTerms:
        """Reads the terms of a run from its record.

        Args:
            record: The content of the run's `experiment.toml`.
            algorithm: The algorithm that the record describes.

        Returns:
            The terms as the run had them, without the digests of the data. Where the record lists
            no sizes, every client has the largest: all are equal, or the account is the
            federation's. Records of earlier versions list no sizes either.

        Raises:
            DpflError: The record holds no budget.
        """
        resolved_section = record["resolved"]
        budget = codec.decode_as(
            Budget,
            resolved_section["budget"],
            "The record of the run holds no budget; restore experiment.toml from a copy.",
        )
        return cls(
            algorithm,
            budget,
            resolved_section["accountant"],
            tuple(
                resolved_section.get(
                    "declared", (resolved_section["largest"],) * resolved_section["clients"]
                )
            ),
            names=recorded_names(resolved_section),
            row_notes=tuple(resolved_section.get("warnings", ())),
            arithmetic=resolved_section.get("arithmetic", ""),
            over_nodes=resolved_section.get("partition") == NODES,
        )

    @property
    def recorded_sizes(self) -> list[int] | None:
        """The declared sizes for the record of the run; None where the largest one says enough.

        They are public constants, which the server knows before training. Only accounts of single
        clients count by them.
        """
        sizes = list(self.declared_sizes)
        return sizes if self.algorithm.ledger_per_client and len(set(sizes)) > 1 else None

    @property
    def limit(self) -> Limit | None:
        """The limit that no debit of this run may pass. A published system has none: it stops where
        its paper's own accounting says.
        """
        algorithm, epsilon = self.algorithm, self.budget.epsilon
        if not epsilon or not algorithm.has_noise or algorithm.variant != "sound":
            return None
        return Limit(epsilon, self.budget.delta, self.accountant)

    @property
    def population(self) -> int:
        """The number of clients that a release samples from; 0 where it samples inside a client."""
        return (
            len(self.declared_sizes) if self.algorithm.placement is NoisePlacement.ROUND_SUM else 0
        )

    @property
    def horizon(self) -> int:
        """The most private releases that the budget's rounds can make; 0 where rounds are
        unlimited.
        """
        rounds = self.budget.rounds
        return min(self.algorithm.releases_in(rounds), MAX_RELEASES) if rounds else 0

    @property
    def neighbours(self) -> str:
        """The neighbouring data sets that the guarantee compares."""
        release = self.algorithm.release
        return release.neighbours if release else "none"

    @property
    def owners(self) -> Sequence[str]:
        """The names of the ledgers that pay."""
        return ledger_owners(self.algorithm, self.names or client_names(len(self.declared_sizes)))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons why the guarantee is weak although every figure is right."""
        return (*self._large_delta(), *self.row_notes)

    def _large_delta(self) -> tuple[str, ...]:
        """Warns of a delta of 1/n or more, which allows a mechanism that publishes one of n
        units.
        """
        algorithm, delta = self.algorithm, self.budget.delta
        if not algorithm.has_noise:
            return ()
        if algorithm.protects_client:
            units, meaning = len(self.declared_sizes), "clients"
        else:
            units, meaning = max(self.declared_sizes), f"the largest client's {algorithm.unit}s"
        if delta < 1 / units:
            return ()
        return (
            f"delta {delta:g} is not below 1/{units} ({meaning}): it allows giving one of them "
            "away; lower it.",
        )
