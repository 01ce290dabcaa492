"""Works out what a run will do, once, before anything is written or debited.

A run is asked for by a `RunSpec`: model, federation, algorithm, budget and four option groups. Much
of it is left open. The noise may have to follow from epsilon and rounds, the learning rate from the
noise, the accountant from the sampling, and the guarantee depends on ledgers that other runs have
used. `resolve` answers all of that and returns a `ResolvedRun`:

    spec = RunSpec(model, federation, algorithm, budget)
    resolved_run = resolve(spec)
    resolved_run.algorithm     # with its noise, its rate, its secure sums
    resolved_run.terms         # what the accounts count by: accountant, limit, declared sizes
    resolved_run.record()      # what experiment.toml keeps of it

It writes nothing. Beside its argument it reads ledgers (what other runs spent) and, to resume, the
record of the run that goes on. It hashes the clients' rows, by which a ledger knows whose data it
counts, and computes fixed features of them; nothing of that leaves the client. So the same spec
gives the same result, and a refusal costs nothing.

The stages depend on each other in this order:

1. The unit and the one-time queries decide which releases there are.
2. The model is built for the data, which gives the layout, and the algorithm is adapted to layout,
   rounds and secure sums.
3. The ledgers are read. A resumed run takes what its record says instead: other runs may have
   spent since, but its own noise must be what it was.
4. The noise is planned (`planning/planner.py`): the least z with
   epsilon(prior spending + queries + all releases) <= epsilon. The learning rate follows from it.
5. The checks and the dry run refuse what would fail in the first round.

The run itself (`prepare.py`) takes all of this result. The server's proposal to nodes
(`propose.py`) goes through the stages and checks that need no sizes, and the audit of an experiment
through those that need neither sizes nor a model. The certificate and the audit of a finished run
read the record back (`AccountingTerms.from_record`).
"""

from __future__ import annotations

import importlib.metadata
import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpfl.algorithms import Algorithm
from dpfl.codec import FORMAT, encode
from dpfl.data import Federation
from dpfl.data.held_out import HeldOutSplit, split_held_out
from dpfl.data.names import client_names
from dpfl.errors import DpflError
from dpfl.import_path import refuse_unreachable
from dpfl.models import Buildable
from dpfl.planning.feature_counts import rows_of
from dpfl.planning.planner import with_planned_noise, with_planned_rate
from dpfl.privacy import Budget
from dpfl.run.accounting.accounting_terms import AccountingTerms
from dpfl.run.accounting.prior_spending import PriorSpending, ledger_data, read_prior_spending
from dpfl.run.options import (
    FAST_IS_FOR_SIMULATIONS,
    Aggregation,
    Evaluation,
    Execution,
    Privacy,
)
from dpfl.run.records.algorithm_record import describe, describe_options
from dpfl.run.records.digests import code_sha256, vector_sha256
from dpfl.run.records.folder import RunFolder
from dpfl.run.stages.algorithm_stages import (
    accountant_for,
    algorithm_for_run,
    with_noise_kind,
    with_unit_and_queries,
)
from dpfl.run.stages.checks import check_run, row_unit_notes
from dpfl.run.stages.dry_run import dry_run
from dpfl.run.stages.model_for_data import ModelForData, model_for_data

PACKAGES = ("dpfl", "torch", "numpy", "dp-accounting")


@dataclass(frozen=True)
class RunSpec:
    """The specification of a run: the arguments of `dpfl.train`, with names made into parts.

    Attributes:
        model: The description of the model.
        federation: The clients and their data.
        algorithm: The algorithm, of which noise and rate may still be open.
        budget: What ends the run.
        privacy: What is protected, and how it is counted.
        aggregation: How the server gets the sum of a round.
        evaluation: What is measured.
        execution: Where and how the run executes.
    """

    model: Buildable
    federation: Federation
    algorithm: Algorithm
    budget: Budget
    privacy: Privacy = field(default_factory=Privacy)
    aggregation: Aggregation = field(default_factory=Aggregation)
    evaluation: Evaluation = field(default_factory=Evaluation)
    execution: Execution = field(default_factory=Execution)

    @property
    def over_nodes(self) -> bool:
        """Whether the clients are nodes on other machines."""
        return self.execution.nodes is not None

    @property
    def clients(self) -> int:
        """How many clients there are."""
        return len(self.federation.sizes)

    @property
    def ledger_folder(self) -> Path | None:
        """The folder of the ledgers; None for a new run without a folder, which has none yet."""
        if self.privacy.ledger:
            return Path(self.privacy.ledger)
        return RunFolder(Path(self.execution.out)).ledgers if self.execution.out else None


@dataclass(frozen=True)
class ResolvedRun:
    """The decisions of a run. Nothing of it changes afterwards.

    Attributes:
        spec: What was asked for.
        requested_algorithm: The algorithm with its unit and its queries, before model, noise and
            rate.
        terms: What the accounts count by. It holds the algorithm as it runs.
        model: The model and the data in the form that it takes.
        split: What the clients train on, and what they hold out for a noisy metric.
        prior: What the ledgers held before this run.
    """

    spec: RunSpec
    requested_algorithm: Algorithm
    terms: AccountingTerms
    model: ModelForData
    split: HeldOutSplit
    prior: PriorSpending

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm as it runs: for its model, with planned noise and rate."""
        return self.terms.algorithm

    @property
    def sizes(self) -> tuple[int, ...]:
        """The size that each client declares for training, in units of the guarantee."""
        return self.split.sizes

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know before the first round, warnings last."""
        metric_notes: tuple[str, ...] = ()
        if not self.model.federation.test:
            instead = (
                "accuracy is not measured"
                if self.spec.evaluation.metric is None
                else "a metric with noise is asked of the clients at the end, and paid for"
            )
            metric_notes = (f"there is no public test set: {instead}",)
        warnings = (f"warning: {warning}" for warning in self.terms.warnings)
        return (*self.spec.federation.notes, *self.prior.notes, *metric_notes, *warnings)

    def record(self) -> dict[str, Any]:
        """Builds the record of the run, without the run's own name.

        Returns:
            The content of `experiment.toml`: the requested settings, the resolved settings, and
            hashes of data, code and model.
        """
        spec, flat = self.spec, self.model.flat
        return {
            "format": FORMAT,
            "experiment": dict(spec.execution.experiment or {}),
            "asked": describe(self.requested_algorithm),
            "resolved": self._resolved_section(),
            "hashes": {
                "federation": spec.federation.sha256,
                "train": spec.federation.train.sha256,
                "test": spec.federation.test.sha256 if spec.federation.test else None,
                "code": code_sha256(),
                "model": flat.fingerprint,
                "initial": vector_sha256(flat.vector),
            },
            "versions": {name: importlib.metadata.version(name) for name in PACKAGES}
            | {"python": platform.python_version()},
        }

    def _resolved_section(self) -> dict[str, Any]:
        spec, terms, federation = self.spec, self.terms, self.spec.federation
        ledger, default_names = spec.privacy.ledger, client_names(len(federation.names))
        return {
            "seed": spec.execution.seed,
            "entropy": spec.privacy.entropy,
            "noise": spec.privacy.noise_for(self.algorithm.unit),
            "accountant": terms.accountant,
            "model": self.model.description.name,
            "model_options": describe_options(self.model.description.options),
            "ledger": str(Path(ledger).resolve()) if ledger else None,
            "budget": encode(spec.budget),
            "algorithm": describe(self.algorithm),
            "clients": spec.clients,
            "names": None if federation.names == default_names else list(federation.names),
            "beside": self.prior.record(),
            "partition": federation.how,
            "largest": max(self.sizes),
            "declared": terms.recorded_sizes,
            "warnings": list(terms.row_notes) or None,
            "arithmetic": terms.arithmetic or None,
        }


def resolve(spec: RunSpec) -> ResolvedRun:
    """Works out what a run will do. It writes nothing, and no private data leaves a client.

    Args:
        spec: What was asked for.

    Returns:
        The run as it will be.

    Raises:
        DpflError: The parts do not fit together, the ledgers are not this run's, or the first round
            would fail.
    """
    if spec.privacy.arithmetic == "fast" and spec.over_nodes:
        raise DpflError(FAST_IS_FOR_SIMULATIONS)
    requested_algorithm = with_unit_and_queries(
        spec.algorithm,
        spec.federation,
        spec.budget,
        spec.privacy,
        spec.evaluation.metric,
        spec.over_nodes,
    )
    row_notes = row_unit_notes(requested_algorithm.unit, spec.federation)
    model = model_for_data(spec.model, spec.federation, spec.execution.seed)
    metric = spec.evaluation.metric
    split = split_held_out(
        model.federation, metric.held_out if metric else 0.0, requested_algorithm.unit
    )
    layout = model.flat.layout
    run_algorithm = algorithm_for_run(
        requested_algorithm, layout, spec.budget.rounds, spec.clients, spec.aggregation
    )
    _refuse_ledger_without_noise(spec, run_algorithm)
    prior = _prior_spending(spec, run_algorithm)
    algorithm = _plan_noise(spec, run_algorithm, model, split, prior)
    check_run(algorithm, model.federation, spec.budget, model.flat)
    arithmetic = dry_run(model, algorithm, spec.privacy.arithmetic)
    if spec.execution.workers > 1:
        refuse_unreachable("model", model.description)
    terms = AccountingTerms(
        algorithm,
        spec.budget,
        accountant_for(algorithm, spec.clients, spec.privacy.accountant),
        split.sizes,
        names=spec.federation.names,
        data=ledger_data(algorithm, spec.federation),
        row_notes=row_notes,
        arithmetic=arithmetic,
        over_nodes=spec.over_nodes,
    )
    return ResolvedRun(spec, requested_algorithm, terms, model, split, prior)


def _refuse_ledger_without_noise(spec: RunSpec, algorithm: Algorithm) -> None:
    if spec.privacy.ledger and not algorithm.has_noise:
        raise DpflError(
            f"{algorithm.name} adds no noise, so no ledger can account for it: leave "
            "privacy.ledger out."
        )


def _prior_spending(spec: RunSpec, algorithm: Algorithm) -> PriorSpending:
    """Reads the spending for which noise is planned; a resumed run reads its record."""
    on_disk = read_prior_spending(
        algorithm, spec.federation, spec.ledger_folder, spec.budget, spec.privacy.accountant
    )
    if not spec.execution.resume:
        return on_disk
    assert spec.execution.out is not None
    record = RunFolder(Path(spec.execution.out)).experiment()
    return PriorSpending.from_record(record.get("resolved", {}))


def _plan_noise(
    spec: RunSpec,
    algorithm: Algorithm,
    model: ModelForData,
    split: HeldOutSplit,
    prior: PriorSpending,
) -> Algorithm:
    """Fits the algorithm and its noise, and then the rate that follows from the noise."""
    with_noise = with_planned_noise(
        algorithm, spec.budget, spec.clients, spec.privacy.accountant, prior.events
    )
    data = model.federation
    with_rate = with_planned_rate(
        with_noise,
        spec.budget,
        split.sizes,
        model.flat.layout.trainable,
        rows_of(data.train.features, data.task),
    )
    return with_noise_kind(with_rate, spec.privacy)
