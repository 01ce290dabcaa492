"""Which noise a run has, and noise that float32 would lose."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import dpfl
from dpfl.algorithms import Algorithm, ali_dpfl, auto, dp_fedavg, fedavg, fedavg_dp, hw_dpfl
from dpfl.data import Federation
from dpfl.errors import DpflError

Train = Callable[..., dpfl.Result]


@pytest.mark.parametrize(
    ("algorithm", "model"),
    [
        (auto(noise_multiplier=1.0), dpfl.models.from_name("scattering-linear")),
        (hw_dpfl(noise_multiplier=1.0, batch_size=20), dpfl.models.mlp(hidden=4)),
        (ali_dpfl(noise_multiplier=1.0, mu="paid"), dpfl.models.mlp(hidden=4)),
        (
            dp_fedavg(cohort=2, noise_multiplier=1.0, clipping="quantile", count_noise=2.0),
            dpfl.models.mlp(hidden=4),
        ),
    ],
)
def test_surveys_slopes_and_counts_have_secure_noise_too(
    train: Train, federation: Federation, algorithm: Algorithm, model: object
) -> None:
    result = train(federation, algorithm, rounds=1, entropy="system", accountant="rdp", model=model)
    assert result.privacy.noise == "secure"
    assert result.rounds == 1


def test_a_run_without_noise_says_so(train: Train, federation: Federation) -> None:
    assert train(federation, fedavg(), rounds=1, entropy="system").privacy.noise == "none"


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        (lambda: fedavg_dp(noise_multiplier=1e-6), "lost in the rounding"),
        (lambda: fedavg_dp(noise_multiplier=1e-12, clip=1e-12), "lost in the rounding"),
        (lambda: dp_fedavg(cohort=2, noise_multiplier=1e-6), "lost in the rounding"),
        (lambda: fedavg_dp(noise_multiplier=1e14, clip=1e20), "too small or too large for float32"),
        (lambda: fedavg_dp(noise_multiplier=1e-300), "between 1e-15 and 1e15"),
        (lambda: fedavg_dp(noise_multiplier=1e300), "between 1e-15 and 1e15"),
    ],
)
def test_noise_that_float32_would_lose_is_refused_before_anything_is_debited(
    train: Train, federation: Federation, algorithm: Callable[[], Algorithm], words: str
) -> None:
    with pytest.raises(DpflError, match=words):
        train(federation, algorithm(), rounds=1)
