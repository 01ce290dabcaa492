"""A system is found by its name, and an unknown name or option is answered with the nearest."""

from __future__ import annotations

import pytest

from dpfl.algorithms import (
    ALGORITHMS,
    from_name,
)
from dpfl.errors import DpflError

OPTIONS = [
    ("fedavg", "taw", "tau"),
    ("fedavg-dp", "noise_multiplyer", "noise_multiplier"),
    ("dp-fedavg", "cohorts", "cohort"),
    ("ce-fedavg", "cliping", "clipping"),
]


@pytest.mark.parametrize(("system", "wrong", "right"), OPTIONS)
def test_an_unknown_option_is_answered_with_the_nearest(
    system: str, wrong: str, right: str
) -> None:
    with pytest.raises(DpflError, match=f"{wrong!r}; did you mean {right!r}"):
        from_name(system, **{wrong: 1})


def test_an_unknown_system_is_answered_with_the_nearest() -> None:
    with pytest.raises(DpflError, match="did you mean 'fedavg-dp'"):
        from_name("fedavg-pd")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_name_alone_gives_the_system_with_its_defaults(name: str) -> None:
    algorithm = from_name(name)
    assert algorithm.name == name
    units = dict.fromkeys(("fedavg", "ce-fedavg", "fedprox", "moon", "scaffold"), "none")
    units |= dict.fromkeys(
        ("dp-fedavg", "dp-fedavg-wav", "ldp-fl", "nbafl", "pe-dpfl", "dp-ftrl", "dyn-dp-fedavg"),
        "client",
    )
    assert algorithm.unit == units.get(name, "sample")
    assert algorithm.variant == "sound"
