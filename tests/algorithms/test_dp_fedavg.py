"""DP-FedAvg: client-level noise on the sum, in every form that it has."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import dp_accounting as dp
import pytest
import torch
from torch import nn

import dpfl
from dpfl.algorithms import dp_fedavg
from dpfl.audit.leaks import leaks
from dpfl.client.task import ClientReply, RoundRequest
from dpfl.data import Federation
from dpfl.models import FlatModel
from dpfl.privacy import Budget, Keyed, accountant
from dpfl.server.coordinator import Coordinator, FederationFacts, RunState
from tests.algorithms.checks import Train
from tests.conftest import ledger_of

CHANCE = 0.1


AT_THE_CLIENT = {
    "flat": dp_fedavg(cohort=10, noise_multiplier=0.1, tau=8),
    "all clients": dp_fedavg(noise_multiplier=0.2, tau=8),
    "fixed-size": dp_fedavg(cohort=10, sampling="fixed-size", noise_multiplier=0.1, tau=8),
    "shared": dp_fedavg(cohort=10, noise_multiplier=0.1, tau=8, noise="clients"),
    "per-layer": dp_fedavg(cohort=10, noise_multiplier=0.1, tau=8, clipping="per-layer"),
    "quantile": dp_fedavg(cohort=10, noise_multiplier=0.1, tau=8, clipping="quantile", clip=0.5),
    "public-median": dp_fedavg(cohort=10, noise_multiplier=0.1, tau=8, clipping="public-median"),
    "weights by size": dp_fedavg(cohort=10, noise_multiplier=0.1, tau=8, weights="size"),
    "server momentum": dp_fedavg(
        cohort=10, noise_multiplier=0.1, tau=8, server_momentum=0.5, server_rate=0.5
    ),
}


@pytest.mark.parametrize("name", AT_THE_CLIENT)
def test_dp_fedavg_learns_where_its_noise_is_small_and_counts_every_round(
    train: Train, crowd: Federation, name: str
) -> None:
    result = train(crowd, AT_THE_CLIENT[name], rounds=8, accountant="rdp")
    assert result.accuracy > 3 * CHANCE
    assert sum(ledger_of(result, "federation").values()) == result.rounds == 8
    assert result.privacy.unit == "client"
    assert set(result.privacy.per_client) == {"every client"}
    assert not list((result.folder / "ledger").glob("client-*"))


STATEMENTS = {
    "poisson": (
        {},
        "add/remove one",
        "pld",
        dp.PoissonSampledDpEvent(0.5, dp.GaussianDpEvent(2.0)),
    ),
    "fixed-size": (
        {"sampling": "fixed-size"},
        "replace one",
        "rdp",
        # One client replaced moves the sum by two norms, so half of the multiplier is left; and who
        # knows that it was not drawn itself knows that ten of nineteen were.
        dp.SampledWithoutReplacementDpEvent(19, 10, dp.GaussianDpEvent(1.0)),
    ),
    "all": ({"cohort": None}, "add/remove one", "pld", dp.GaussianDpEvent(2.0)),
    "quantile": (
        {"clipping": "quantile", "count_noise": 2.0},
        "add/remove one",
        "pld",
        dp.PoissonSampledDpEvent(0.5, dp.GaussianDpEvent(2.0)),
    ),
    "shared": (
        {"noise": "clients"},
        "add/remove one",
        "pld",
        # One of the ten can subtract its own share: nine are left. What the paper claims is for all
        # ten.
        dp.PoissonSampledDpEvent(0.5, dp.GaussianDpEvent(2.0 * math.sqrt(9 / 10))),
    ),
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_dp_fedavg_states_unit_neighbours_adversary_and_both_epsilons(
    train: Train, crowd: Federation, name: str
) -> None:
    options, neighbours, by, event = STATEMENTS[name]
    algorithm = dp_fedavg(**({"cohort": 10, "noise_multiplier": 2.0, "tau": 1} | options))
    result = train(crowd, algorithm, rounds=3)
    statement = result.privacy
    assert ledger_of(result, "federation") == {event: 3}
    assert statement.unit == "client"
    assert statement.neighbours == neighbours
    assert statement.accountant == by
    assert statement.proven == pytest.approx(accountant(by).epsilon({event: 3}, 1e-5))
    shared = "missing shares" in statement.adversary
    assert shared == (name == "shared")
    stated = dp.PoissonSampledDpEvent(0.5, dp.GaussianDpEvent(2.0)) if shared else event
    assert statement.claimed == pytest.approx(accountant("rdp-classic").epsilon({stated: 3}, 1e-5))
    assert statement.claimed >= statement.proven
    knows = any("whether it was drawn" in assumption for assumption in statement.assumptions)
    assert knows == (name != "all"), "a member of a cohort knows that it is one"
    if not shared:
        assert "server is trusted" in statement.adversary
    else:
        assert any("0.632" in assumption for assumption in statement.assumptions), (
            "z / sqrt(P) of a single upload"
        )
        assert statement.adversary.startswith("any one other client")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sampling": "fixed-size"},
        {"noise": "clients"},
        {"clipping": "quantile", "count_noise": 9.0},
    ],
)
def test_dp_fedavg_plans_noise_that_stays_inside_epsilon(
    train: Train, crowd: Federation, options: dict[str, Any]
) -> None:
    result = train(
        crowd, dp_fedavg(cohort=5, tau=1, **options), rounds=4, epsilon=5.0, accountant="rdp"
    )
    assert 4.9 < result.privacy.proven <= 5.0
    assert result.rounds == 4


def test_a_client_level_run_that_goes_on_stops_at_the_last_affordable_round(
    train: Train, crowd: Federation
) -> None:
    result = train(
        crowd, dp_fedavg(cohort=5, tau=1, noise_multiplier=1.5), epsilon=4.0, accountant="rdp"
    )
    (event, count) = next(iter(ledger_of(result, "federation").items()))
    assert result.stopped_by == "epsilon"
    assert count == result.rounds
    assert result.privacy.proven <= 4.0 < accountant("rdp").epsilon({event: count + 1}, 1e-5)


def test_quantile_clipping_moves_its_level_towards_the_norms(
    train: Train, crowd: Federation
) -> None:
    options = {"cohort": 10, "noise_multiplier": 0.1, "tau": 4, "clipping": "quantile"}
    low = train(crowd, dp_fedavg(clip=1e-3, **options), rounds=6, accountant="rdp", out="low")
    high = train(crowd, dp_fedavg(clip=1e3, **options), rounds=6, accountant="rdp", out="high")
    levels = [row.clip for row in low.history]
    assert levels == sorted(levels)
    assert levels[-1] > 1.3e-3
    assert high.history[-1].clip < 0.8e3


def test_a_public_median_costs_nothing_and_is_found_anew_each_round(
    train: Train, crowd: Federation
) -> None:
    result = train(
        crowd, dp_fedavg(cohort=10, noise_multiplier=1.0, tau=4, clipping="public-median"), rounds=3
    )
    levels = [row.clip for row in result.history]
    assert len(set(levels)) == 3
    assert all(0 < level < 10 for level in levels)
    assert sum(ledger_of(result, "federation").values()) == 3


# As published: the clip norm is half the mean update norm of a run without privacy


def coordinator(
    algorithm: dpfl.algorithms.Algorithm,
    probe: Callable[[RoundRequest], list[ClientReply]],
    public: tuple[int, ...] = (),
) -> Coordinator:
    layout = FlatModel(nn.Linear(3, 2)).layout
    algorithm = algorithm.for_model(layout)
    federated = FederationFacts("run", [10, 10, 30], layout, public)
    state = RunState(
        torch.zeros(layout.size),
        torch.zeros(layout.size),
        algorithm.samples,
        algorithm.clients,
        [9, 9, 9],
    )
    return Coordinator(
        algorithm, Budget(rounds=2), federated, state, Keyed(0), probe, lambda vector: 0.0
    )


def test_the_published_clip_is_half_the_mean_norm_over_clients_and_rounds() -> None:
    norms, requests = iter((3.0, 1.0, 2.0, 6.0, 4.0, 2.0)), list[RoundRequest]()

    def probe(request: RoundRequest) -> list[ClientReply]:
        requests.append(request)
        return [
            ClientReply(task.client, next(norms) * torch.ones(8) / math.sqrt(8))
            for task in request.tasks
        ]

    run = coordinator(dp_fedavg("published", noise_multiplier=1.0), probe)
    request = run.next_request()
    assert request.tasks[0].clients.clip.clip_norm == pytest.approx(0.5 * 18 / 6)
    assert [one.round for one in requests] == [0, 1]
    assert all(one.tasks[0].clients.clip.clip_norm == math.inf for one in requests)
    # The second round of FedAvg starts where the first ended: the mean of updates of norm 3, 1 and
    # 2.
    assert float(requests[1].vector.norm()) == pytest.approx(2.0)
    assert float(run.state.vector.norm()) == 0


def test_no_epsilon_is_proven_of_a_clip_from_raw_updates(train: Train, crowd: Federation) -> None:
    algorithm = dp_fedavg(
        "published", noise_multiplier=2.0, cohort=10, tau=2, batch_size=20, pilot=1
    )
    result = train(crowd, algorithm, rounds=2)
    assert result.privacy.proven == math.inf
    assert result.privacy.claimed < 20
    assert result.privacy.unaccounted == (algorithm.leaks[0],)
    assert len({row.clip for row in result.history}) == 1
    assert result.history[0].clip != 1.0


def test_the_audit_finds_that_clip() -> None:
    violations = leaks(dp_fedavg("published", noise_multiplier=1.0, pilot=1), rounds=2)
    assert any("clip level" in leak.what for leak in violations)
