"""The release of a whole update: for a sample by a bound, or for a client by twice the clip."""

from __future__ import annotations

import math

import pytest

from dpfl.errors import DpflError
from dpfl.privacy import All, Flat, Gaussian, Poisson
from dpfl.privacy.accounting.events import ADD_REMOVE, REPLACE, gaussian
from dpfl.privacy.mechanisms.update_release import UpdateRelease


def update(**parts: object) -> UpdateRelease:
    options = {"clip": Flat(1.0), "noise": Gaussian(2.0), "sensitivity_bound": 0.5, **parts}
    return UpdateRelease(All(), **options)  # type: ignore[arg-type]


def test_the_noise_is_for_the_bound_and_not_for_the_clip() -> None:
    release = update()
    assert release.sensitivity() == 0.5
    assert release.stddev(largest_weight=3.0) == pytest.approx(2.0 * 0.5 * 3.0)
    assert release.event(100) == gaussian(2.0)
    assert release.neighbours == ADD_REMOVE


def test_two_updates_of_one_client_are_twice_the_clip_apart() -> None:
    release = update(protects="client", sensitivity_bound=2.0)
    assert release.covers(release.diameter)
    assert release.neighbours == REPLACE
    with pytest.raises(DpflError, match="twice its norm"):
        update(protects="client", sensitivity_bound=1.9)


@pytest.mark.parametrize(
    "parts",
    [{"sensitivity_bound": math.inf}, {"protects": "all"}, {"shared_by": 2}, {"divisor": 2.0}],
)
def test_an_update_without_a_bound_or_with_a_divisor_is_refused(parts: dict[str, object]) -> None:
    with pytest.raises(DpflError):
        update(**parts)


def test_nothing_is_sampled_for_an_update() -> None:
    with pytest.raises(DpflError, match="sampling"):
        UpdateRelease(Poisson(0.1), Flat(1.0), Gaussian(1.0), sensitivity_bound=1.0)
