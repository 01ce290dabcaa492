"""A model that amplifies the last bit finds batches that change a unit's result, and finds none in
our clipped sums.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from dpfl.audit.amplification.amplifiers import Amplifier, backward, convolution, linear, mlp
from dpfl.audit.amplification.search import (
    AmplificationTrial,
    Sums,
    amplified_movement,
    dependent_units,
    furthest_movement,
)
from dpfl.engines import one_thread
from dpfl.gradients.clipped import ClippedGradients
from dpfl.models import FlatModel
from dpfl.privacy import Flat

ROUNDING = 1 + 1e-6
"""Of a sum of clipped gradients, in clip norms."""

MODELS: dict[str, Callable[[], Amplifier]] = {
    "linear 3969-10": lambda: linear(3969, 10),
    "linear 13-2": lambda: linear(13, 2),
    "linear 13-10": lambda: linear(13, 10),
    "linear 31-2": lambda: linear(31, 2),
    "linear 105-10": lambda: linear(105, 10),
    "mlp 784-200-10": lambda: mlp(784, 200, 10),
    "mlp 13-64-2": lambda: mlp(13, 64, 2),
    "convolution 1x14x14": lambda: convolution((1, 14, 14), 16, 5, 10),
    "convolution 3x16x16": lambda: convolution((3, 16, 16), 8, 3, 10),
    "slopes 8-16-10": lambda: backward(8, 16, 10),
    "slopes 8-32-62": lambda: backward(8, 32, 62),
}


def clipped_sum(amplifier: Amplifier) -> Sums:
    """Our own code, as a node runs it."""
    gradients = ClippedGradients(FlatModel(amplifier.module))

    def play(x: Tensor, y: Tensor, whose: Tensor | None) -> AmplificationTrial:
        summed = gradients(x, y, Flat(1.0).factors, whose)
        return AmplificationTrial(summed.total, summed.losses)

    return play


def softmax_regression(amplifier: Amplifier, order: Callable[[int, int], bool]) -> Sums:
    """Written out row by row: products are added in reversed order where `order` says so, of (batch
    size, row).
    """
    layer = amplifier.module[0]
    assert isinstance(layer, torch.nn.Linear)

    def gradient(row: Tensor, label: Tensor, reverse: bool) -> tuple[Tensor, Tensor]:
        products = layer.weight.detach() * row
        if reverse:
            products = products.flip(1)
        terms = torch.cat([layer.bias.detach()[:, None], products], 1).numpy()
        scores = torch.from_numpy(
            terms.cumsum(1)[:, -1]
        )  # one float32 after the other, which torch does in float64
        slopes = scores.softmax(0) - torch.nn.functional.one_hot(label, len(scores))
        written = torch.cat([torch.outer(slopes, row).flatten(), slopes]).double()
        loss = torch.nn.functional.cross_entropy(scores[None], label[None])
        return written / max(1.0, float(written.norm())), loss

    def play(x: Tensor, y: Tensor, whose: Tensor | None) -> AmplificationTrial:
        assert whose is None
        found = [
            gradient(row, label, order(len(x), place))
            for place, (row, label) in enumerate(zip(x, y, strict=True))
        ]
        return AmplificationTrial(
            torch.stack([one for one, _ in found]).sum(0), torch.stack([loss for _, loss in found])
        )

    return play


def two_layers(amplifier: Amplifier, order: Callable[[int, int], bool]) -> Sums:
    """A model of two layers row by row: the slopes of hidden units are added in reversed order
    where `order` says so.
    """
    first, _, head = amplifier.module

    @torch.no_grad()
    def gradient(row: Tensor, reverse: bool) -> Tensor:
        hidden = (first.weight.double() @ row.double() + first.bias).relu()
        wrong = (head.weight.double() @ hidden + head.bias).softmax(0).float()
        wrong[1] -= 1
        products = (head.weight * wrong[:, None]).numpy()
        slopes = torch.from_numpy((products[::-1] if reverse else products).cumsum(0)[-1]) * (
            hidden > 0
        )
        parts = torch.outer(slopes, row), slopes, torch.outer(wrong, hidden.float()), wrong
        written = torch.cat([part.flatten() for part in parts]).double()
        return written / max(1.0, float(written.norm()))

    def play(x: Tensor, y: Tensor, whose: Tensor | None) -> AmplificationTrial:
        total = torch.stack(
            [gradient(row, order(len(x), place)) for place, row in enumerate(x)]
        ).sum(0)
        return AmplificationTrial(total, torch.zeros(len(x)))

    return play


def test_the_game_finds_an_order_of_addition_that_follows_the_size_of_the_batch() -> None:
    amplifier = linear(31, 3)
    found = furthest_movement(
        softmax_regression(amplifier, lambda size, _: size % 2 == 0), amplifier, sizes=(4, 9)
    )
    assert found.others == 9
    assert found.movement > 8


def test_the_game_finds_an_order_of_addition_that_follows_the_place_of_a_row() -> None:
    amplifier = linear(31, 3)
    play = softmax_regression(amplifier, lambda _, place: place % 4 == 0)
    assert dependent_units(play, amplifier, sizes=(9,)).keys() == {
        (9, 0)
    }  # a row at the end moves no other
    # rows 0, 3, 4, 7 and 8 change theirs
    assert amplified_movement(play, amplifier, 9).movement > 4


def test_the_game_finds_nothing_where_a_row_is_a_function_of_itself() -> None:
    amplifier = linear(31, 3)
    play = softmax_regression(amplifier, lambda size, place: False)
    assert not dependent_units(play, amplifier, sizes=range(1, 10))
    assert (
        0.99 < furthest_movement(play, amplifier, sizes=range(1, 10), tries=10).movement <= ROUNDING
    )


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_one_unit_moves_our_clipped_sum_by_its_own_gradient_alone(name: str, rows: int) -> None:
    amplifier = MODELS[name]()
    with one_thread():
        play = clipped_sum(amplifier)
        assert amplifier.markers or dependent_units(play, amplifier, rows=rows) == {}
        # without sizes: where units depend on the batch, it would look for them once more
        found = furthest_movement(play, amplifier, sizes=(), rows=rows, tries=20)
        assert found.movement <= ROUNDING


OTHER_KERNELS = """
import json
from dpfl.audit.amplification.search import dependent_units, furthest_movement
from dpfl.engines import one_thread
from tests.audit.amplification.test_search import MODELS, clipped_sum

far = {}
with one_thread():
    for name, build in MODELS.items():
        amplifier = build()
        play = clipped_sum(amplifier)
        found = [] if amplifier.markers else [dependent_units(play, amplifier, rows=rows) for rows in (1, 3)]
        far[name] = sum(map(len, found)), furthest_movement(play, amplifier, sizes=(), tries=10).movement
print(json.dumps(far))
"""  # noqa: E501


@pytest.mark.parametrize("instructions", ["AVX2", "SSE4_2"])
def test_no_result_depends_on_the_batch_with_the_kernels_of_other_processors(
    instructions: str,
) -> None:
    """MKL and oneDNN choose kernels by the processor; on request they take those of an older
    one.
    """
    kernels = {
        "MKL_ENABLE_INSTRUCTIONS": instructions,
        "ONEDNN_MAX_CPU_ISA": "AVX2" if instructions == "AVX2" else "SSE41",
    }
    run = subprocess.run(
        [sys.executable, "-c", OTHER_KERNELS],
        env={**os.environ, **kernels},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-600:]
    found = json.loads(run.stdout)
    assert found.keys() == MODELS.keys()
    assert [
        name for name, (changed, movement) in found.items() if changed or movement > ROUNDING
    ] == []


def test_the_sign_of_a_slope_moves_a_sum_by_two_clip_norms() -> None:
    """The slope of a row that comes first is added in another order than that of the same row
    elsewhere.
    """
    amplifier = backward(8, 16, 10)
    play = two_layers(amplifier, lambda _, place: place == 0)
    found = amplified_movement(play, amplifier, 4)
    assert 2.9 < found.movement < 3.01
    assert (
        amplified_movement(two_layers(amplifier, lambda *_: False), amplifier, 4, tries=10).movement
        <= ROUNDING
    )


def test_what_was_played_can_be_played_again() -> None:
    amplifier = linear(31, 3)
    play = softmax_regression(amplifier, lambda size, _: size % 2 == 0)
    found = amplified_movement(play, amplifier, 5, place=2)
    labels = torch.ones(6, dtype=torch.int64)
    sums = [
        play(units.flatten(0, 1), labels[: len(units)], None).total
        for units in (found.units, found.together)
    ]
    assert float((sums[1] - sums[0]).norm()) == pytest.approx(found.movement)
    assert torch.equal(found.together[2:3], found.new_unit)
