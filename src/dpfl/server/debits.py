"""Counts what a round costs, and debits the federation's own ledger.

Clients that add noise themselves have debited their own ledgers before their replies arrive, and
the server only counts that. Where the server adds the noise to the sum, this module debits the
federation's ledger, and the debit is on the disk before the noise is drawn. The name of the release
is a digest of the sum and its noise, so a repeated round with keyed noise is debited once.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dpfl.client.noise_placement import NoisePlacement
from dpfl.privacy import Randomness
from dpfl.privacy.mechanisms.randomness import with_scope
from dpfl.server.aggregation.aggregate import release_name
from dpfl.server.state import FederationFacts, RunState

if TYPE_CHECKING:
    from torch import Tensor

    from dpfl.server.algorithm import Algorithm


def count_debits(
    algorithm: Algorithm,
    state: RunState,
    steps: int,
    cohort: Iterable[int],
    payers: Iterable[int],
) -> None:
    """Counts the releases of a round in the run's state.

    Args:
        algorithm: The algorithm, which says whose ledger pays.
        state: The run as it stands; changed in place.
        steps: The local steps of the round.
        cohort: The clients of the round. Each of them may have paid.
        payers: The clients that are known to have paid.
    """
    if algorithm.ledger_per_client:
        in_steps = algorithm.placement is NoisePlacement.EVERY_STEP
        releases = steps + algorithm.steps.paid_slopes if in_steps else 1
        for client in cohort:
            state.remaining[client] = max(0, state.remaining[client] - releases)
        for client in payers:
            state.debits[client] += releases
    elif algorithm.clients.whole_run:
        state.debits[0] = 1
    elif algorithm.placement is NoisePlacement.ROUND_SUM:
        state.remaining[0] -= 1
        state.debits[0] += 1


def debit_round(
    federation: FederationFacts,
    state: RunState,
    total: Tensor,
    inside: int,
    horizon: int,
    randomness: Randomness,
) -> Randomness:
    """Debits a round from the federation's ledger. All clients pay, whoever was drawn.

    Model, sum and count name the release and key its noise. A round that runs again after a crash
    is therefore the same release, with the same noise, only if the same sum and count come out.

    Args:
        federation: The federation, with its ledger.
        state: The run as it stands.
        total: The sum of the round before noise.
        inside: How many updates lay within the clip.
        horizon: How many releases are still to come; 0 where that is not known.
        randomness: The randomness of the run.

    Returns:
        Randomness for the noise of this sum alone.

    Raises:
        BudgetRefusal: The ledger has no room for the round.
    """
    ledger = federation.ledger
    assert ledger is not None
    name = release_name(state.clients, state.vector, total, inside)
    fresh = "" if randomness.repeatable else secrets.token_hex(16)
    place = f"{federation.run}/{state.round}"
    entry = f"{place}/{name}{fresh}"
    if state.clients.whole_run:
        # Rounds that run again and come out otherwise belong to another release of all rounds.
        entry = f"{federation.run}/all rounds/{ledger.attempts_before(place, name + fresh)}"
    ledger.debit(
        federation.run,
        entry,
        state.clients.event(len(federation.declared_sizes)),
        1,
        federation.limit,
        horizon,
    )
    return with_scope(randomness, name)
