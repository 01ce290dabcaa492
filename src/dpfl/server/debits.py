"""Client level: the federation's own ledger pays for a round before the noisy sum of it exists."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from dpfl.privacy import Randomness
from dpfl.privacy.mechanisms.randomness import with_scope
from dpfl.server.aggregate import release_name
from dpfl.server.state import FederationFacts, RunState

if TYPE_CHECKING:
    from torch import Tensor


def debit_round(
    federated: FederationFacts,
    state: RunState,
    total: Tensor,
    inside: int,
    horizon: int,
    randomness: Randomness,
) -> Randomness:
    """The whole federation pays, whoever was drawn; what is returned is for the noise of this sum
    alone.

    A round that is made again after a crash is the same release only if the same sum and count come
    out, to get the same noise: these name it, and key its noise.
    """
    ledger = federated.ledger
    assert ledger is not None
    name = release_name(state.clients, state.vector, total, inside)
    fresh = "" if randomness.repeatable else secrets.token_hex(16)
    place = f"{federated.run}/{state.round}"
    entry = f"{place}/{name}{fresh}"
    if (
        state.clients.whole_run
    ):  # rounds that are made again, and come out otherwise, are of another release of them all
        entry = f"{federated.run}/all rounds/{ledger.attempts_before(place, name + fresh)}"
    ledger.debit(
        federated.run,
        entry,
        state.clients.event(len(federated.declared)),
        1,
        federated.limit,
        horizon,
    )
    return with_scope(randomness, name)
