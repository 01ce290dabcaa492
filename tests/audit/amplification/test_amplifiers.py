"""Models whose loss, or whose slope, has the sign of a rounding error."""

import copy
from collections.abc import Callable

import pytest
import torch

from dpfl.audit.amplification.amplifiers import (
    LABEL,
    SCALE,
    Amplifier,
    backward,
    convolution,
    linear,
    mlp,
)

GATED: dict[str, Callable[[], Amplifier]] = {
    "linear": lambda: linear(31, 3),
    "mlp": lambda: mlp(13, 8, 3),
    "convolution": lambda: convolution((1, 8, 8), 2, 3, 3),
}


def gated(amplifier: Amplifier) -> float:
    """The gated value at the base, in float64."""
    gate = copy.deepcopy(amplifier.gate).double()
    return float(gate(amplifier.base.double()[None]).detach().flatten()[amplifier.unit])


@pytest.mark.parametrize("name", GATED)
def test_the_value_is_zero_at_the_base_but_for_rounding(name: str) -> None:
    assert abs(gated(GATED[name]())) < 1e-5 * SCALE


@pytest.mark.parametrize("name", GATED)
def test_the_sign_of_the_value_opens_and_closes_the_gate(name: str) -> None:
    amplifier = GATED[name]()
    weight = next(amplifier.gate.parameters())[0].detach()
    if name == "convolution":
        change = torch.zeros_like(amplifier.base)
        change[:, 3:6, 3:6] = weight
    else:
        change = weight
    labels = torch.tensor([LABEL])
    losses = [
        float(
            torch.nn.functional.cross_entropy(
                amplifier.module((amplifier.base + sign * 1e-9 * change)[None]), labels
            ).detach()
        )
        for sign in (-1, 1)
    ]
    assert losses[0] < 1e-3
    assert losses[1] > 0.1


def test_a_slope_is_zero_at_the_base_and_shows_in_no_loss() -> None:
    amplifier = backward(8, 16, 10)
    assert amplifier.markers == 41
    assert not amplifier.base[-amplifier.markers :].any()
    first = amplifier.module[0](amplifier.base[None])[0]  # type: ignore[index]
    assert float(first[0].detach()) == 2.0**-60
    assert abs(gated(amplifier)) < 1e-5 * 2.0**10 * SCALE
