"""Clips from clients whose data is public."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from dpfl import Budget
from dpfl.algorithms import dp_fedavg
from dpfl.client.noise_placement import NoisePlacement
from dpfl.client.task import ClientReply, RoundRequest
from dpfl.errors import DpflError
from dpfl.privacy import Flat, Gaussian, Poisson, Release
from dpfl.privacy.mechanisms.clips.adaptive_clip import PublicMedian
from dpfl.server.aggregation.update import ServerUpdate
from dpfl.server.public_clips import norms_without_privacy, of_public_samples, rounds_of
from tests.server.rounds import SIZE, coordinator


def test_a_public_median_is_the_median_norm_of_the_public_clients_and_is_not_debited(
    tmp_path: Path,
) -> None:
    asked: list[RoundRequest] = []

    def probe(request: RoundRequest) -> list[ClientReply]:
        asked.append(request)
        return [
            ClientReply(task.client, unit(norm))
            for task, norm in zip(request.tasks, (3.0, 1.0, 2.0), strict=True)
        ]

    def unit(norm: float) -> Tensor:
        return norm * torch.ones(SIZE) / math.sqrt(SIZE)

    run = coordinator(dp_fedavg(noise_multiplier=1.0, clipping="public-median"), tmp_path)
    run.federation = run._requests.federation = replace(run.federation, public=(4, 5, 6))
    run._probe = probe
    request = run.next_request()
    assert request.tasks[0].clients.clip.clip_norm == pytest.approx(2.0)
    assert [task.client for task in asked[0].tasks] == [4, 5, 6]
    assert asked[0].tasks[0].clients.clip.clip_norm == math.inf
    assert run.federation.ledger.spending() == {}


def norms(*values: float) -> list[ClientReply]:
    return [ClientReply(4, raw={"norms": np.array(values)})]


def test_a_clip_of_samples_is_the_median_of_public_gradients() -> None:
    samples = Release(Poisson(0.1), PublicMedian(1.0), Gaussian(1.0))
    adapted, clients = of_public_samples(
        samples, Release(), norms(1.0, 2.0, 9.0), NoisePlacement.EVERY_STEP
    )
    assert adapted.clip.clip_norm == 2.0
    assert clients == Release()


def test_a_private_clip_of_updates_is_scaled_like_that_of_the_gradients() -> None:
    samples = Release(Poisson(0.1), PublicMedian(1.0), None)
    of_clients = Release(Poisson(0.5), Flat(6.0), Gaussian(1.0))
    _, clients = of_public_samples(samples, of_clients, norms(0.5), NoisePlacement.ROUND_SUM)
    assert clients.clip == Flat(3.0)


def test_norms_without_privacy_are_of_every_update_in_every_round() -> None:
    seen: list[tuple[int, float]] = []

    def train(round: int, vector: Tensor) -> list[ClientReply]:
        seen.append((round, float(vector[0])))
        return [ClientReply(0, torch.ones(4)), ClientReply(1, failure="gone")]

    measured = norms_without_privacy(train, 2, torch.zeros(4), torch.ones(2), ServerUpdate(0.5))
    assert measured == [2.0, 2.0]
    assert seen == [(0, 0.0), (1, 0.25)], "the clients that failed count as a step of zero"


def test_the_run_without_privacy_needs_a_number_of_rounds() -> None:
    assert rounds_of(Flat(1.0), Budget(rounds=7)) == 7
    with pytest.raises(DpflError, match=r"budget\.rounds"):
        rounds_of(Flat(1.0), Budget(epsilon=1.0, delta=1e-5))
