"""Weights from declared sizes, and the refusal of those that the noise does not cover."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dpfl.algorithms import Algorithm, dp_fedavg, fedavg, fedavg_dp
from dpfl.errors import DpflError
from dpfl.privacy import Flat, Gaussian, Ledger, Poisson, Release
from dpfl.server.aggregation.weights import SizeWeights, UniformWeights, round_divisor
from tests.server.rounds import coordinator

SIZES = st.lists(st.integers(1, 100_000), min_size=2, max_size=12)


@given(sizes=SIZES)
def test_weights_by_size_are_sizes_over_the_largest(sizes: list[int]) -> None:
    weights = SizeWeights().of(sizes)
    assert float(weights.max()) == 1.0
    assert torch.allclose(weights * max(sizes), torch.tensor(sizes, dtype=torch.float32))


def test_uniform_weights_are_ones() -> None:
    assert UniformWeights().of([5, 1, 9]).tolist() == [1.0, 1.0, 1.0]


class Heavy(SizeWeights):
    def of(self, declared: Sequence[int], answers: Any = None) -> Tensor:
        return torch.tensor([1.0, self.odd, 0.5, 0.25])


@pytest.mark.parametrize("odd", [1.001, 40.0, -0.5, math.nan, math.inf])
@pytest.mark.parametrize(
    "algorithm", [dp_fedavg(noise_multiplier=1.0), fedavg_dp(noise_multiplier=1.0)]
)
def test_fault_weights_that_the_noise_was_not_made_for(
    tmp_path: Path, algorithm: Algorithm, odd: float
) -> None:
    """A weight of 40 moves the sum by 40 clips, and the noise is for one."""
    weights = type("Odd", (Heavy,), {"odd": odd})()
    with pytest.raises(DpflError, match="a weight from 0 to 1"):
        coordinator(replace(algorithm, weights=weights), tmp_path)
    ledger = Ledger.read(tmp_path / "federation.sqlite")
    assert ledger.spending() == {}, "before anything was paid"
    ledger.close()


def test_weights_of_another_number_of_clients_and_a_divisor_of_nothing_are_refused() -> None:
    short = type(
        "Short", (SizeWeights,), {"of": lambda self, declared, answers=None: torch.ones(2)}
    )()
    empty = type("Empty", (UniformWeights,), {"usual": lambda self, declared: 0.0})()
    for weights, words in ((short, "a weight from 0 to 1"), (empty, "usual weight")):
        with pytest.raises(DpflError, match=words):
            coordinator(replace(fedavg(), weights=weights))


def test_a_round_is_divided_by_the_expected_cohort_times_the_usual_weight() -> None:
    release = Release(Poisson(0.25), Flat(1.0), Gaussian(1.0))
    assert round_divisor(release, UniformWeights(), [10, 20, 30, 40]) == 1.0
    assert round_divisor(release, SizeWeights(), [10, 20, 30, 40]) == pytest.approx(0.625)
