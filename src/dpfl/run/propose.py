"""Works out the proposal of a run for nodes that have not yet declared a size.

The stages are those of `resolve`. Noise is planned from the budget and from no data, so the nodes
can be told what the run would spend before they join. What can be checked without sizes is checked
here: a node that joins writes it down.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from dpfl.algorithms import Algorithm
from dpfl.data import Dataset
from dpfl.data.remote_federation import RemoteFederation
from dpfl.data.tables.schema import Schema
from dpfl.errors import DpflError
from dpfl.models import Buildable
from dpfl.planning.feature_counts import rows_of
from dpfl.planning.paid_queries import PrivateMetric
from dpfl.planning.planner import with_planned_noise, with_planned_rate
from dpfl.privacy import Budget
from dpfl.privacy.accounting.calibration import MAX_RELEASES
from dpfl.privacy.accounting.events import EventCounts
from dpfl.protocol.proposal import MOST_KINDS, PlannedEvents, Proposal, in_order
from dpfl.run.accounting.accounting_terms import AccountingTerms
from dpfl.run.options import Aggregation, Privacy
from dpfl.run.stages.algorithm_stages import (
    accountant_for,
    algorithm_for_run,
    with_noise_kind,
    with_unit_and_queries,
)
from dpfl.run.stages.checks import check_without_sizes
from dpfl.run.stages.dry_run import dry_run
from dpfl.run.stages.model_for_data import ModelForData, model_for_data
from dpfl.server.rules import NODES, check

Propose = Callable[[int], Proposal]
"""The proposal to the node at a place of the list."""


@dataclass(frozen=True)
class ProposalSpec:
    """The specification of a proposal, made before the server knows the nodes' sizes.

    Attributes:
        model: The description of the model.
        algorithm: The algorithm, of which the noise may still be open.
        budget: What ends the run.
        form: Data of the form that the nodes have. None of its values are used.
        test: The server's public test set, if any.
        names: The names of the nodes.
        keys: The public keys of the nodes, in the order of their names.
        privacy: What is protected, and how it is counted.
        aggregation: How the server gets the sum of a round.
        metric: The noisy metric that nodes are asked for at the end, if any.
    """

    model: Buildable
    algorithm: Algorithm
    budget: Budget
    form: Dataset
    test: Dataset | None
    names: Sequence[str]
    keys: Sequence[str] = ()
    privacy: Privacy = field(default_factory=Privacy)
    aggregation: Aggregation = field(default_factory=Aggregation)
    metric: PrivateMetric | None = None


def build_proposal(spec: ProposalSpec) -> Propose:
    """Works out the proposal to each node.

    Args:
        spec: What the server asks for.

    Returns:
        A function that gives the proposal to the node at a place of the list.

    Raises:
        DpflError: The releases would depend on what nodes have not yet declared.
    """
    if spec.algorithm.steps.asks_raw:
        raise DpflError(
            "Nodes never send raw values to choose tau by: set algorithm.variant = 'sound'."
        )
    nodes, unit, budget = len(spec.names), spec.privacy.unit, spec.budget
    federation = RemoteFederation.of(spec.form, spec.test, spec.names, (1,) * nodes, unit)
    model = model_for_data(spec.model, federation, seed=0)
    algorithm = _algorithm(spec, federation, model)
    check(algorithm, NODES)
    _check(algorithm, model, spec)
    terms = AccountingTerms(
        algorithm,
        budget,
        accountant_for(algorithm, nodes, spec.privacy.accountant),
        federation.declared_sizes,
        federation.names,
        over_nodes=True,
    )
    return partial(
        Proposal,
        system=algorithm.name,
        variant=algorithm.variant,
        unit=algorithm.unit,
        neighbours=terms.neighbours,
        model=spec.model.name,
        options=tuple(spec.model.options),
        learning=spec.form.task,
        shape=spec.form.shape,
        schema=digest(spec.form.schema),
        epsilon=budget.epsilon,
        delta=budget.delta,
        rounds=budget.rounds,
        accountant=terms.accountant,
        noise=algorithm.noise,
        federation=tuple(spec.names),
        events=_events(terms),
        sums=algorithm.noise_shares,
        keys=tuple(spec.keys) if algorithm.noise_shares else (),
    )


def _algorithm(spec: ProposalSpec, federation: RemoteFederation, model: ModelForData) -> Algorithm:
    """Builds the algorithm by the stages of `resolve` that need no sizes."""
    nodes, layout = len(spec.names), model.flat.layout
    requested_algorithm = with_unit_and_queries(
        spec.algorithm, federation, spec.budget, spec.privacy, spec.metric, over_nodes=True
    )
    run_algorithm = algorithm_for_run(
        requested_algorithm, layout, spec.budget.rounds, nodes, spec.aggregation
    )
    with_noise = with_planned_noise(run_algorithm, spec.budget, nodes, spec.privacy.accountant)
    return with_noise_kind(with_noise, spec.privacy)


def _check(algorithm: Algorithm, model: ModelForData, spec: ProposalSpec) -> None:
    """Refuses what would fail in the first round, before any node writes that it joined.

    A rate that follows from the sizes is planned for the smallest. What sizes alone decide is
    checked by `resolve` when the nodes have declared them.
    """
    data = model.federation
    check_without_sizes(algorithm, data, spec.budget, model.flat)
    with_rate = with_planned_rate(
        algorithm,
        spec.budget,
        data.sizes,
        model.flat.layout.trainable,
        rows_of(data.train.features, data.task),
    )
    dry_run(model, with_rate)


def _events(terms: AccountingTerms) -> PlannedEvents:
    """Lists the releases that a node's own ledger would pay for, in order."""
    algorithm = terms.algorithm
    if not algorithm.ledger_per_client:
        return ()
    per_round = algorithm.releases_in(1) if algorithm.schedule else 0

    def spending(count: int) -> EventCounts:
        return algorithm.spending(count, terms.population)

    events = in_order(algorithm.query_spending, spending, terms.horizon or MAX_RELEASES, per_round)
    if len(events) > MOST_KINDS:
        raise DpflError(
            f"A node plans at most {MOST_KINDS} kinds of releases for a run, and this run has "
            f"{len(events)}: lower algorithm.phases."
        )
    return events


def digest(schema: Schema | None) -> str:
    """Computes the digest of a table's schema, which nodes compare with their own.

    Args:
        schema: The declared columns of a table, or None.

    Returns:
        A SHA-256 in hexadecimal; "" without a schema.
    """
    return hashlib.sha256(schema.to_json().encode()).hexdigest() if schema else ""
