"""Convolutions by their rule, against gradients sample by sample and Opacus."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dpfl.gradients import products
from tests.gradients.gradient_reference import (
    CLASSES,
    batch,
    by_opacus,
    by_rule,
    check,
    close,
    one_by_one,
)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_every_image_convolution(data: st.DataObject) -> None:
    def pair(low: int, high: int) -> tuple[int, int]:
        return data.draw(st.integers(low, high)), data.draw(st.integers(low, high))

    torch.manual_seed(0)
    groups = data.draw(st.sampled_from([1, 2, 3]))
    channels, width = groups * data.draw(st.integers(1, 2)), groups * data.draw(st.integers(1, 2))
    padding = data.draw(st.sampled_from(["same", "valid", "pair"]))
    stride = (1, 1) if padding == "same" else pair(1, 3)
    mode = data.draw(st.sampled_from(["zeros", "circular", "replicate", "reflect"]))
    conv = nn.Conv2d(
        channels,
        width,
        pair(1, 3),
        stride=stride,
        padding=pair(0, 2) if padding == "pair" else padding,
        dilation=pair(1, 2),
        groups=groups,
        bias=data.draw(st.booleans()),
        padding_mode=mode,
    )
    module = nn.Sequential(
        conv, nn.Tanh(), nn.AdaptiveAvgPool2d((2, 1)), nn.Flatten(), nn.Linear(2 * width, CLASSES)
    )
    size = data.draw(st.sampled_from([0, 1, 7]))
    check(module, *batch(size, channels, *pair(6, 9)))


@pytest.mark.parametrize("size", [1, 90])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_convolutions_of_full_batches(size: int, groups: int) -> None:
    image = nn.Sequential(
        nn.Conv2d(4, 8, 3, stride=2, groups=groups), nn.Tanh(), nn.Flatten(), nn.Linear(72, CLASSES)
    )
    by_rule(image, *batch(size, 4, 7, 7))
    sequence = nn.Sequential(
        nn.Conv1d(4, 4, 3, stride=2, groups=groups), nn.Tanh(), nn.Flatten(), nn.Linear(12, CLASSES)
    )
    by_rule(sequence, *batch(size, 4, 7))


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_every_sequence_convolution(data: st.DataObject) -> None:
    torch.manual_seed(0)
    groups = data.draw(st.sampled_from([1, 2, 3]))
    channels, width = groups * data.draw(st.integers(1, 2)), groups * data.draw(st.integers(1, 2))
    padding = data.draw(st.sampled_from(["same", "valid", 0, 1, 2]))
    conv = nn.Conv1d(
        channels,
        width,
        data.draw(st.integers(1, 3)),
        stride=1 if padding == "same" else data.draw(st.integers(1, 3)),
        padding=padding,
        dilation=data.draw(st.integers(1, 2)),
        groups=groups,
        bias=data.draw(st.booleans()),
        padding_mode=data.draw(st.sampled_from(["zeros", "circular", "replicate", "reflect"])),
    )
    module = nn.Sequential(
        conv, nn.Tanh(), nn.AdaptiveAvgPool1d(2), nn.Flatten(), nn.Linear(2 * width, CLASSES)
    )
    x, y = batch(data.draw(st.sampled_from([0, 1, 7])), channels, data.draw(st.integers(6, 9)))
    by_rule(module, x, y)
    if len(x) and conv.padding_mode == "zeros" and not isinstance(padding, str):
        assert close(by_opacus(module, x, y), one_by_one(module, x, y))


@pytest.mark.parametrize("advantage", [0, 10**9])
@pytest.mark.parametrize("keep", [0, 10**9])
@pytest.mark.parametrize("groups", [1, 2])
def test_ghost_or_written_out_kept_or_recomputed(
    monkeypatch: pytest.MonkeyPatch, advantage: int, keep: int, groups: int
) -> None:
    monkeypatch.setattr(products, "_GRAM_ADVANTAGE", advantage)
    monkeypatch.setattr(products, "_KEEP", keep)
    monkeypatch.setattr(products, "_BLOCK", 500)
    check(
        nn.Sequential(
            nn.Conv2d(2, 4, 3, stride=2, padding=(1, 0), groups=groups),
            nn.Tanh(),
            nn.Flatten(2),
            nn.Linear(12, 5),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(20, CLASSES),
        ),
        *batch(7, 2, 7, 7),
    )


@pytest.mark.parametrize("kernel", [(2, 3), (3, 1)])
def test_kernels_that_are_not_square(kernel: tuple[int, int]) -> None:
    torch.manual_seed(0)
    places = (6 - kernel[0]) * (6 - kernel[1])
    module = nn.Sequential(
        nn.Conv2d(2, 3, kernel), nn.Tanh(), nn.Flatten(), nn.Linear(3 * places, CLASSES)
    )
    check(module, *batch(2, 2, 5, 5))
