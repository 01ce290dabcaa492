"""What a run has come to, and what a policy may know of it."""

from pathlib import Path

import torch

from dpfl.algorithms import ali_dpfl, dp_fedavg, fedavg, fedavg_dp
from dpfl.client.task import ClientReply
from dpfl.server.state import RunState, step_facts
from tests.server.rounds import CLIENTS, SIZE, coordinator, flat


def test_a_vector_of_models_keeps_its_running_variances_positive(tmp_path: Path) -> None:
    run = coordinator(dp_fedavg(noise_multiplier=1.0, clip=10.0), tmp_path)
    run.aggregate([ClientReply(client, torch.full((SIZE,), -5.0)) for client in range(CLIENTS)])
    layout = flat().layout
    spans = {name: layout.span(entry) for entry, name in enumerate(layout.names)}
    assert float(run.state.vector[spans["1.running_var"]].min()) >= 0.99e-5
    assert float(run.state.vector[spans["1.running_mean"]].min()) < 0


def test_every_account_starts_without_debits_and_the_average_is_the_model() -> None:
    algorithm, vector = fedavg(), torch.zeros(SIZE)
    state = RunState(vector, vector, None, algorithm.clients, [5, 5])
    assert state.debits == [0, 0]
    assert state.model is vector
    state.average = torch.ones(SIZE)
    assert state.model is state.average


def test_a_policy_knows_expected_batches_and_the_noise_over_the_clip() -> None:
    run = coordinator(fedavg_dp(noise_multiplier=1.5, sampling_rate=0.1, clip=2.0))
    known = step_facts(run.algorithm, run.budget, run.federation, run.state, torch.ones(CLIENTS))
    assert list(known.batches) == list(known.divisors) == [1.0, 2.0, 3.0, 4.0]
    by_constant = coordinator(ali_dpfl(variant="published", reading="code", sampling_rate=0.1))
    known_too = step_facts(
        by_constant.algorithm, run.budget, run.federation, by_constant.state, torch.ones(CLIENTS)
    )
    assert list(known_too.batches) == [1.0, 2.0, 3.0, 4.0], "as in the bound on tau"
    assert list(known_too.divisors) == [64.0] * 4, "as in the noise of an update"
    assert (known.rounds, known.clip, known.multiplier) == (100, 2.0, 1.5)
    assert known.parameters == flat().layout.trainable == known.energy
    plain = coordinator(fedavg())
    bare = step_facts(
        plain.algorithm, plain.budget, plain.federation, plain.state, torch.ones(CLIENTS)
    )
    assert (bare.clip, bare.multiplier, list(bare.batches), bare.energy) == (0.0, 0.0, [], 0.0)
