"""Systems refuse options that do not fit together, before anything is written."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from torch import nn

from dpfl.algorithms import (
    Algorithm,
    ce_fedavg,
    dp_fedavg,
    fedavg,
    fedavg_dp,
    moon,
    pe_dpfl,
)
from dpfl.data import Federation
from dpfl.errors import DpflError
from tests.algorithms.checks import Train


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: dp_fedavg(noise="clients", noise_multiplier=1.0), "cohort"),
        (
            lambda: dp_fedavg(noise="clients", cohort=4, weights="size", noise_multiplier=1.0),
            "uniform weights",
        ),
        (
            lambda: dp_fedavg(noise="clients", cohort=4, clipping="quantile", noise_multiplier=1.0),
            "server",
        ),
        (lambda: fedavg_dp(sampling_rate=0.0), "sampling rate"),
        (lambda: fedavg_dp(clip=0.0), "clip"),
        (lambda: fedavg_dp(noise_multiplier=0.0), "noise multiplier"),
        (lambda: fedavg(tau=0), "tau"),
        (lambda: ce_fedavg(rate=0.0), "learning rate"),
        (lambda: moon(temperature=0.0), "temperature"),
        (lambda: moon(mu=-1.0), "mu"),
        (lambda: moon(mu=math.nan), "mu"),
        (lambda: pe_dpfl(share=-0.5), "share"),
        (lambda: pe_dpfl(perturbation=-0.1), "deviation"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused_with_a_sentence(
    make: Callable[[], Algorithm], sentence: str
) -> None:
    with pytest.raises(DpflError, match=sentence):
        make()


@pytest.mark.parametrize(
    ("algorithm", "sentence"),
    [
        (dp_fedavg(cohort=4, noise_multiplier=1.0, clipping="quantile"), "count_noise"),
        (dp_fedavg(cohort=2, noise_multiplier=1.0, clipping="public-median"), "public"),
        (dp_fedavg(cohort=99, noise_multiplier=1.0), "99"),
        (fedavg(cohort=99), "99"),
    ],
)
def test_what_would_fail_in_the_first_round_is_refused_before_anything_is_written(
    train: Train, federation: Federation, tmp_path: Path, algorithm: Algorithm, sentence: str
) -> None:
    with pytest.raises(DpflError, match=sentence):
        train(federation, algorithm, rounds=3)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("algorithm", [moon(), pe_dpfl(noise_multiplier=1.0)])
def test_a_model_without_a_last_linear_layer_is_refused_before_anything_is_written(
    train: Train, federation: Federation, tmp_path: Path, algorithm: Algorithm
) -> None:
    with pytest.raises(DpflError, match=r"end it with nn\.Linear"):
        train(
            federation,
            algorithm,
            rounds=1,
            model=nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.LogSoftmax(1)),
        )
    assert not (tmp_path / "run").exists()
