"""Published systems and their sound variants learn inside both budgets and resume.

Only the sound ones prove their epsilon.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

import dpfl
from dpfl.algorithms import (
    ALGORITHMS,
    from_name,
    options_of,
)
from dpfl.data import Federation
from dpfl.privacy import Ledger, accountant
from tests.algorithms.checks import Train
from tests.conftest import StopsAfter

EPSILON, ROUNDS = 12.0, 8


CLIENTS = 4


# Enough noise for epsilon, rates at which 250 images a client are learnt in eight rounds.
OPTIONS: dict[str, dict[str, Any]] = {
    "ali-dpfl": {"sampling_rate": 0.2, "noise_multiplier": 0.8, "rate": 1.0, "mu": None},
    "als-dpfl": {"sampling_rate": 0.2, "noise_multiplier": 0.8, "rate": 0.5},
    "hw-dpfl": {"batch_size": 200, "rate": 1.0, "samples": 250},
    "dp-sgd-wav": {"sampling_rate": 0.3, "rate": 1.0, "tau": 3},
    "dp-fedavg-wav": {"tau": 8, "clip": 2.0, "batch_size": 32},
    "dp-fedavg": {"tau": 8, "clip": 2.0, "pilot": 2},
    "nbafl": {
        "clip": 6.0,
        "samples": 250,
        "clients": 4,
        "rounds": ROUNDS,
        "exposures": ROUNDS,
        "tau": 8,
    },
    "dyn-dp-sgd": {"sampling_rate": 0.3, "rate": 1.0, "tau": 2, "phases": 4},
    "dyn-dp-fedavg": {"tau": 8, "phases": 4},
}


# The noise that these need for a sensible epsilon lets them learn nothing in eight rounds: only the
# loop is tested, with less.
HOPELESS = {
    ("dp-sgd-wav", "sound"): 2e-3,
    ("dp-fedavg-wav", "sound"): 1e-3,
    ("hw-dpfl", "published"): 2e-3,
    ("nbafl", "sound"): 1e-3,
    ("nbafl", "published"): 1e-3,
    ("dyn-dp-fedavg", "sound"): 0.4,
    ("dyn-dp-fedavg", "published"): 0.4,
}


NEARLY_TRUE = {"dyn-dp-sgd", "dyn-dp-fedavg"}
"""Their noise is what they state; only the limit theorem that they count it with is no bound."""


VARIANTS = [(name, variant) for name in OPTIONS for variant in ("sound", "published")]


def system(name: str, variant: str) -> dpfl.algorithms.Algorithm:
    noise = HOPELESS.get((name, variant))
    return from_name(
        name, variant=variant, **OPTIONS[name] | ({"noise_multiplier": noise} if noise else {})
    )


def crowd_for(name: str, federation: Federation, crowd: Federation) -> Federation:
    return crowd if name in ("dp-fedavg", "dp-fedavg-wav", "dyn-dp-fedavg") else federation


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_a_variant_learns_inside_both_budgets_resumes_and_says_what_is_proven(
    train: Train, federation: Federation, crowd: Federation, name: str, variant: str
) -> None:
    algorithm, data = system(name, variant), crowd_for(name, federation, crowd)
    options = {
        "rounds": ROUNDS,
        "accountant": "rdp",
        "epsilon": None if (name, variant) in HOPELESS else EPSILON,
    }
    result = train(data, algorithm, **options)
    assert result.accuracy > 0.3, "well above the 0.1 of chance"
    assert result.rounds <= ROUNDS
    statement = result.privacy
    if variant == "sound":
        assert statement.proven <= (options["epsilon"] or math.inf)
        assert statement.proven < math.inf
        assert statement.unaccounted == ()
    else:
        assert statement.claimed <= (options["epsilon"] or math.inf)
        assert statement.proven > statement.claimed * (1 if name in NEARLY_TRUE else 10)
        assert (statement.proven == math.inf) == bool(statement.unaccounted)
        assert all(row.epsilon is None or row.epsilon == statement.proven for row in result.history)
    with pytest.raises(KeyboardInterrupt):
        train(data, algorithm, out="broken", progress=StopsAfter(3), **options)
    resumed = train(data, algorithm, out="broken", resume=True, **options)
    assert resumed.model_sha256 == result.model_sha256
    assert resumed.privacy.proven == statement.proven
    assert [row.steps for row in resumed.history] == [row.steps for row in result.history]


@pytest.mark.parametrize("name", sorted(OPTIONS.keys() - NEARLY_TRUE))
def test_the_ledger_of_a_published_system_holds_the_truth(
    train: Train, federation: Federation, crowd: Federation, name: str
) -> None:
    epsilon = None if (name, "published") in HOPELESS else EPSILON
    result = train(
        crowd_for(name, federation, crowd),
        system(name, "published"),
        rounds=2,
        accountant="rdp",
        epsilon=epsilon,
    )
    ledger = Ledger.read(next((result.folder / "ledger").glob("*.sqlite")))
    try:
        events = ledger.spending()
        assert ledger.limit is None
    finally:
        ledger.close()
    assert accountant("rdp").epsilon(events, 1e-5) == pytest.approx(
        max(result.privacy.per_client.values()), rel=0.05
    )
    assert result.privacy.proven > 100 or result.privacy.proven == math.inf


def test_every_system_with_variants_is_tested_here() -> None:
    assert {name for name in ALGORITHMS if "variant" in options_of(name)} == set(OPTIONS)
