"""What the server asks of clients."""

from dataclasses import replace

import torch

from dpfl.algorithms import Algorithm, dp_fedavg, fedavg_dp, scaffold
from dpfl.client.task import RAW_VALUES
from dpfl.server.requests import RequestBuilder
from tests.server.rounds import SIZE, coordinator


def builder(algorithm: Algorithm) -> RequestBuilder:
    """The requests of a run of 100 rounds at four clients."""
    run = coordinator(algorithm)
    return RequestBuilder(algorithm, run.budget, run.federation, run.state)


def test_a_training_round_has_a_task_for_each_client_and_the_releases_still_to_come() -> None:
    requests = builder(fedavg_dp(tau=2, noise_multiplier=1.0))
    request = requests.training((0, 3), 2)
    assert [(task.client, task.steps) for task in request.tasks] == [(0, 2), (3, 2)]
    assert request.tasks[0].horizon == requests.horizon == 200
    requests.state.round, requests.state.iterations = 40, 80
    assert requests.horizon == 120


def test_public_clients_train_without_noise_and_say_raw_values() -> None:
    requests = builder(fedavg_dp(noise_multiplier=1.0))
    requests.federation = replace(requests.federation, public=(4, 5))
    request = requests.public_training(1, requests.state.samples)
    assert [task.client for task in request.tasks] == [4, 5]
    assert all(task.samples.noise is None for task in request.tasks)
    assert all(task.raw and task.raw_values == RAW_VALUES for task in request.tasks)
    norms = requests.public_norms()
    assert all(task.norms and task.samples.noise is None for task in norms.tasks)


def test_unclipped_updates_are_asked_for_without_clip_and_noise() -> None:
    request = builder(dp_fedavg(noise_multiplier=1.0)).unclipped_updates(
        (1,), 3, 7, torch.ones(SIZE)
    )
    (task,) = request.tasks
    assert (request.round, task.round, task.steps) == (7, 7, 3)
    assert task.clients.clip.bounds == "nothing"
    assert not task.clients.has_noise
    assert torch.equal(request.vector, torch.ones(SIZE))


def test_raw_values_are_asked_for_once_more_at_each_clients_own_model() -> None:
    start, update = torch.ones(SIZE), torch.full((SIZE,), 2.0)
    request = builder(fedavg_dp(noise_multiplier=1.0)).raw_again(start, {2: update})
    assert [(task.client, task.steps) for task in request.tasks] == [(2, 0)]
    assert torch.equal(request.corrections[2], start + update)


def test_vectors_of_clients_are_new_once_and_then_those_of_the_state() -> None:
    requests = builder(scaffold())
    assert requests.state.client_vectors is None
    vectors = requests.client_vectors()
    assert vectors is requests.state.client_vectors
    assert vectors.shape[0] == 4
    assert requests.client_vectors() is vectors
