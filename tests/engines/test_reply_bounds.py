"""Replies that no honest node makes: one by one, and what they would do to others."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from dpfl.client.descent.optimisers import SGD, Adam
from dpfl.client.task import ClientReply, ClientTask, LocalTraining
from dpfl.engines.reply_bounds import LONGEST, bound_violation
from dpfl.privacy import All, Flat, Gaussian, PerLayer, Poisson, Release
from dpfl.privacy.mechanisms.clips.adaptive_clip import Quantile
from dpfl.privacy.mechanisms.clips.clip import ModelClip
from dpfl.privacy.mechanisms.noises.haar_release import HaarClip, HaarNoise
from dpfl.privacy.mechanisms.noises.secure_noise import SecureGaussian
from dpfl.privacy.mechanisms.update_release import UpdateRelease
from dpfl.privacy.queries.columns import ColumnQuery
from dpfl.privacy.queries.histogram import LabelQuery
from dpfl.privacy.queries.mean import MeanQuery
from dpfl.privacy.queries.metric import MetricQuery
from dpfl.server.aggregation.aggregate import noisy_sum, weighted_sum

SIZE, DECLARED = 1000, 100
LOCAL = LocalTraining(SGD(0.1))
STEPS = ClientTask(0, 0, 3, LOCAL, Release(), Release(Poisson(0.1), Flat(1.0), SecureGaussian(2.0)))


def of_clients(**parts: object) -> ClientTask:
    return ClientTask(
        0,
        0,
        3,
        LOCAL,
        Release(Poisson(0.5), Flat(1.0), SecureGaussian(1.0)) if not parts else Release(**parts),
    )


def longer_than(task: ClientTask, length: float, vector: torch.Tensor | None = None) -> bool:
    """Whether an update of this length, all of it in one number, is beyond what can be."""
    update = torch.zeros(SIZE)
    update[7] = length
    return bound_violation(
        task,
        ClientReply(0, update),
        torch.zeros(SIZE) if vector is None else vector,
        DECLARED,
        None,
    )


def test_what_a_client_sent_cannot_be_read_off_the_rounding_of_a_sum_with_two_liars() -> None:
    """Noise of one, on a grid of 64: a float32 sum would say, whatever the noise, whether the third
    sent 0.99 or nothing. In float64 the noise decides; and such replies are not summed at all."""

    def released(sent: float, seed: int) -> float:
        replies = [
            ClientReply(client, torch.tensor([update]))
            for client, update in enumerate((31.5, sent, 2.0**29))
        ]
        total = weighted_sum(replies, torch.ones(3), 1)
        return float(noisy_sum(total, 3, of_clients().clients, np.random.default_rng(seed)))

    for sent in (0.99, 0.0):
        assert {released(sent, seed) - 2.0**29 for seed in range(50)} == {0.0, 64.0}
    assert longer_than(of_clients(), 31.5)
    assert longer_than(of_clients(), 2.0**29)
    assert not longer_than(of_clients(), 0.99)


@pytest.mark.parametrize(
    ("task", "most"),
    [
        (of_clients(), 1.0),
        (of_clients(sampling=All(), clip=PerLayer(0.5), noise=Gaussian(1.0)), 0.5),
        (of_clients(sampling=All(), clip=Quantile(0.3), noise=Gaussian(0.5)), 0.3),
        (
            of_clients(sampling=All(), clip=Flat(1.0), noise=Gaussian(1.0), shared_by=4),
            1 + 0.5 * (math.sqrt(2 * SIZE) + 12),
        ),
        (
            replace(
                of_clients(),
                update=UpdateRelease(All(), Flat(1.0), Gaussian(1.0), sensitivity_bound=2.0),
            ),
            1 + 2 * (math.sqrt(2 * SIZE) + 12),
        ),
        (STEPS, 0.3 * (100 + 2 * 2 * (math.sqrt(SIZE) + 12) / 10)),
        (
            replace(STEPS, samples=Release(Poisson(0.1), Flat(1.0), Gaussian(2.0), divisor=5.0)),
            0.3 * (100 * 10 / 5 + 2 * 2 * (math.sqrt(SIZE) + 12) / 5),
        ),
        (replace(STEPS, local=LocalTraining(Adam(0.1))), LONGEST),
        (ClientTask(0, 0, 3, LOCAL, Release()), LONGEST),
    ],
)
def test_an_update_is_no_longer_than_clip_noise_and_steps_make_it(
    task: ClientTask, most: float
) -> None:
    assert not longer_than(task, 0.999 * most)
    assert longer_than(task, 1.01 * most)
    assert longer_than(task, 3.4e38)
    assert longer_than(task, -3.4e38)


def test_a_clip_of_models_is_of_the_difference_to_the_one_that_was_sent() -> None:
    task = replace(
        of_clients(),
        update=UpdateRelease(All(), ModelClip(1.0), Gaussian(0.01), sensitivity_bound=2.0),
    )
    sent = torch.zeros(SIZE)
    sent[0] = 50.0
    assert longer_than(task, 40.0)
    assert not longer_than(task, 40.0, sent)


def test_coefficients_are_measured_as_their_clip_does() -> None:
    haar = HaarClip(1.0, ends=(SIZE,))
    task = of_clients(sampling=All(), clip=haar, noise=HaarNoise(1.0, ends=(SIZE,)))
    update = torch.randn(1, SIZE, generator=torch.Generator().manual_seed(0))
    inside = (update / haar.norms(update)[0])[0]
    assert not bound_violation(task, ClientReply(0, inside), torch.zeros(SIZE), DECLARED, None)
    assert bound_violation(task, ClientReply(0, 1.01 * inside), torch.zeros(SIZE), DECLARED, None)


@pytest.mark.parametrize(
    "query",
    [MeanQuery(2.0), ColumnQuery(2.0, 3, (0, 1), ((2, 4),)), MetricQuery(2.0, 2, 6, 1.0, 0.0)],
)
def test_the_answer_to_a_question_is_a_noisy_mean(
    query: MeanQuery | ColumnQuery | MetricQuery,
) -> None:
    task, zeros = replace(STEPS, steps=0, query=query), torch.zeros(SIZE)

    def odd(answer: np.ndarray) -> bool:
        return bound_violation(task, ClientReply(0, raw={"answer": answer}), zeros, DECLARED, None)

    assert not odd(np.ones(8))
    assert not odd(-30 * np.ones(8))
    for value in (1e4, -1e30, 1e308):
        assert odd(np.full(8, value))
    assert isinstance(query, MeanQuery) or odd(np.ones(9))


def test_shares_of_labels_are_shares() -> None:
    task = replace(STEPS, steps=0, query=LabelQuery(2.0))
    for shares, odd in (
        ([0.5, 0.5], False),
        ([1.0, 0.0], False),
        ([-1e308, 1.0], True),
        ([3.0, 4.0], True),
        ([0.0, 0.0], True),
    ):
        reply = ClientReply(0, raw={"answer": np.array(shares)})
        assert bound_violation(task, reply, torch.zeros(SIZE), DECLARED, None) == odd
