"""Words of an experiment file become parts; an unknown word is answered with the nearest."""

from __future__ import annotations

from typing import Any

import pytest

from dpfl.algorithms import from_name
from dpfl.algorithms.options import cohort_of, haar_noise_of, noise_of, poisson_cohort_of
from dpfl.errors import DpflError
from dpfl.privacy import All, FixedSize, Gaussian, PoissonSize
from dpfl.privacy.mechanisms.noises.noise import Uncalibrated


@pytest.mark.parametrize(
    ("system", "options", "hint"),
    [
        ("dp-fedavg", {"clipping": "per_layer"}, "per-layer"),
        ("dp-fedavg", {"sampling": "poison"}, "poisson"),
        ("dp-fedavg", {"noise": "client", "cohort": 3}, "clients"),
        ("fedavg", {"weights": "sizes"}, "size"),
        ("ce-fedavg", {"clipping": "models"}, "model"),
        ("fedavg-dp", {"clipping": "flatt"}, "flat"),
    ],
)
def test_an_unknown_word_is_answered_with_the_nearest(
    system: str, options: dict[str, Any], hint: str
) -> None:
    with pytest.raises(DpflError, match=f"did you mean {hint!r}"):
        from_name(system, **options)


def test_parts_that_are_not_given_mean_everyone_and_planned_noise() -> None:
    assert cohort_of(None) == poisson_cohort_of(None) == All()
    assert (cohort_of(3), poisson_cohort_of(3)) == (FixedSize(3), PoissonSize(3))
    assert isinstance(noise_of(None), Uncalibrated)
    assert noise_of(1.5) == Gaussian(1.5)
    assert isinstance(haar_noise_of(None, "paper", False, ()), Uncalibrated)
    assert haar_noise_of(1.5, "paper", False, ()).noise_multiplier == 1.5
