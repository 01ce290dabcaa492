"""What a run is to be, worked out before any node has said anything: noise is planned from the
budget, and from no data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial

from dpfl.algorithms import Algorithm
from dpfl.client.noise_placement import NoisePlacement
from dpfl.data import Dataset
from dpfl.data.remote_federation import RemoteFederation
from dpfl.data.tables.schema import Schema
from dpfl.errors import DpflError
from dpfl.models import Buildable, FlatModel
from dpfl.models.build import built
from dpfl.models.columns import on_columns
from dpfl.planning.paid_queries import PrivateMetric, with_questions
from dpfl.planning.planner import with_planned_noise
from dpfl.privacy import Budget
from dpfl.privacy.accounting.accountant import default_accountant, proven_accountant
from dpfl.privacy.accounting.calibration import MAX_RELEASES
from dpfl.protocol.proposal import MOST_KINDS, Proposal, in_order
from dpfl.run.aggregation import Aggregation
from dpfl.run.prepare import with_features

Propose = Callable[[int], Proposal]
"""To the node at a place of the list."""


def build_proposal(
    algorithm: Algorithm,
    model: Buildable,
    budget: Budget,
    form: Dataset,
    test: Dataset | None,
    names: Sequence[str],
    accountant: str | None,
    noise: str | None,
    entropy: str,
    unit: str | None,
    metric: PrivateMetric | None,
    aggregation: Aggregation = Aggregation(),
    keys: Sequence[str] = (),
) -> Propose:
    """Refused where the releases would depend on what nodes have not yet declared."""
    if algorithm.steps.asks_raw:
        raise DpflError(
            "Nodes are asked for no raw values to choose tau by: set algorithm.variant = 'sound'."
        )
    wanted, nodes = model, len(names)
    model = on_columns(model, form.features)
    algorithm = algorithm if unit is None else algorithm.for_unit(unit)
    here = RemoteFederation.of(form, test, names, (1,) * nodes, unit)
    algorithm = with_questions(algorithm, here, metric, budget, accountant, True)
    federation = with_features(model, here)
    flat = FlatModel(built(model, federation.shape, federation.task.outputs, 0), federation.task)
    algorithm = aggregation.of(
        algorithm.for_model(flat.layout).for_rounds(budget.rounds, nodes), nodes
    )
    algorithm = with_planned_noise(algorithm, budget, nodes, accountant)
    if noise == "secure" or (noise is None and entropy == "system" and algorithm.unit != "none"):
        algorithm = algorithm.with_secure_noise()
    _refuse_unknown_sizes(algorithm)
    _refuse_shares_of_noise(algorithm)
    release = algorithm.release
    by = (
        proven_accountant(accountant or default_accountant(release.event(nodes))).name
        if release
        else "none"
    )
    rounds = (
        min(algorithm.releases_in(budget.rounds), MAX_RELEASES) if budget.rounds else MAX_RELEASES
    )
    each = algorithm.releases_in(1) if algorithm.schedule else 0
    spending = partial(
        algorithm.spending,
        population=nodes if algorithm.placement is NoisePlacement.ROUND_SUM else 0,
    )
    own = in_order(algorithm.before, spending, rounds, each) if algorithm.ledger_per_client else ()
    if len(own) > MOST_KINDS:
        raise DpflError(
            f"A node plans {MOST_KINDS} kinds of releases for a run at most, and this has "
            f"{len(own)}: lower algorithm.phases."
        )
    return partial(
        Proposal,
        system=algorithm.name,
        variant=algorithm.variant,
        unit=algorithm.unit,
        neighbours=release.neighbours if release else "none",
        model=wanted.name,
        options=tuple(wanted.options),
        learning=form.task,
        shape=form.shape,
        schema=digest(form.schema),
        epsilon=budget.epsilon,
        delta=budget.delta,
        rounds=budget.rounds,
        accountant=by,
        noise=algorithm.noise,
        federation=tuple(names),
        events=own,
        sums=algorithm.noise_shares,
        keys=tuple(keys) if algorithm.noise_shares else (),
    )


def digest(schema: Schema | None) -> str:
    return hashlib.sha256(schema.to_json().encode()).hexdigest() if schema else ""


def _refuse_shares_of_noise(algorithm: Algorithm) -> None:
    """Shares are counted as if everybody added theirs, and a node that lies adds none."""
    if algorithm.clients.shared_by:
        raise DpflError(
            f"In {algorithm.name} with noise = 'clients' all are protected only if every node adds "
            "its share, which nobody can "
            "see: set algorithm.noise = 'server'."
        )


def _refuse_unknown_sizes(algorithm: Algorithm) -> None:
    """Batches of b of n samples cost by n, which only the node knows before it joins."""
    if algorithm.clients.clip.adapts_to == "raw":
        raise DpflError(
            "A clip from a run without privacy is for simulations: set algorithm.variant = 'sound'."
        )
    by_size = (
        algorithm.release is not None
        and algorithm.placement is not NoisePlacement.ROUND_SUM
        and algorithm.event(2) != algorithm.event(3)
    )
    if algorithm.ledger_per_client and (by_size or algorithm.for_client_size(2) is not algorithm):
        raise DpflError(
            f"A release of {algorithm.name} costs by how many samples a node has, which is not "
            "known before it joins: draw "
            "batches by a sampling_rate."
        )
