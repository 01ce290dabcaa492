"""What the server keeps for clients: the same on worker processes and after a resume."""

from __future__ import annotations

import pytest

from dpfl.algorithms import (
    Algorithm,
    dp_scaffold,
    from_name,
    moon,
    scaffold,
)
from dpfl.data import Federation
from tests.algorithms.checks import Train
from tests.conftest import StopsAfter

KEEPING = {
    "dp-scaffold": dp_scaffold(tau=2, noise_multiplier=1.0, rate=0.3),
    "scaffold": scaffold(tau=2, cohort=3),
    "moon": moon(tau=2, cohort=3, mu=5.0),
    "a contrast and noisy uploads": from_name(
        "custom", where="uploads", objective="contrastive", noise_multiplier=1.0
    ),
}


@pytest.mark.parametrize("algorithm", KEEPING.values(), ids=list(KEEPING))
def test_what_is_kept_for_clients_is_the_same_on_workers_and_after_a_resume(
    train: Train, federation: Federation, algorithm: Algorithm
) -> None:
    whole = train(federation, algorithm, rounds=5, accountant="rdp", delta=1e-5)
    assert (
        train(federation, algorithm, rounds=5, accountant="rdp", out="two", workers=2).model_sha256
        == whole.model_sha256
    )
    with pytest.raises(KeyboardInterrupt):
        train(
            federation, algorithm, rounds=5, accountant="rdp", out="broken", progress=StopsAfter(2)
        )
    resumed = train(federation, algorithm, rounds=5, accountant="rdp", out="broken", resume=True)
    assert resumed.model_sha256 == whole.model_sha256
