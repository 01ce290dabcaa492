"""Chunks in which a row has the same bits in every batch; features and metrics take them."""

import math

import pytest
import torch
from torch import Tensor, nn

from dpfl.gradients.self_test import SelfTest
from dpfl.models import FlatModel
from dpfl.models.catalog import feature_map, scattering_linear
from dpfl.models.features.patches import patch_features
from dpfl.models.features.scattering import scattering_features
from dpfl.models.row_sizes import (
    GRAINS,
    InvariantSizes,
    RowFunction,
    UnpaddedSizes,
    checksum,
    pad,
    padded_chunks,
)


def test_the_smallest_size_that_passes_and_its_multiples() -> None:
    asked = []

    def reference(rows: int, per_unit: int) -> bytes | None:
        asked.append(rows)
        return None if rows in (32, 192) else b"same" if rows % 64 == 0 else b"other"

    sizes = InvariantSizes(256, reference)
    assert [sizes.rows_for(units) for units in (1, 64, 65, 128, 129, 1000)] == [
        64,
        64,
        128,
        128,
        256,
        256,
    ]
    assert asked[0] == 32
    assert sizes.path.startswith("exact: padded")


def test_where_nothing_passes_each_unit_is_alone() -> None:
    sizes = InvariantSizes(128, lambda *_: None)
    assert sizes.rows_for(50) == 1
    assert sizes.rows_for(50, 4) == 4
    assert sizes.path == "exact: one unit at a time"


def test_chunks_leave_nothing_over_for_scalar_functions() -> None:
    """Fault: with 16 rows of one number torch computed a sigmoid by another function, which few
    inputs show.
    """
    assert all(grain % 32 == 0 for grain in GRAINS)


def test_where_the_test_fails_later_units_are_alone_from_then_on() -> None:
    """Fault: the sizes of before were kept, and a size that failed was equal to one that failed as
    well.
    """
    passes = [True]
    sizes = InvariantSizes(128, lambda *_: b"same" if passes[0] else None)
    assert sizes.rows_for(40) == 64
    passes[0] = False
    assert sizes.rows_for(40) == 1


def test_little_memory_has_single_units() -> None:
    assert InvariantSizes(31, lambda *_: b"same").rows_for(9) == 1
    assert InvariantSizes(32, lambda *_: b"same").rows_for(9) == 32
    assert UnpaddedSizes(100).rows_for(7) == 7
    assert UnpaddedSizes(100).rows_for(7, 30) == 90


def test_padding_is_zeros_in_memory_of_its_own() -> None:
    values = torch.ones(5, 3)
    padded = pad(values[1:], 6)
    assert padded.shape == (6, 3)
    assert not padded[4:].any()
    chunks = list(
        padded_chunks(InvariantSizes(32, lambda *_: b"same"), torch.arange(40.0), torch.arange(40))
    )
    assert [count for _, count in chunks] == [32, 8]
    assert all(len(x) == len(y) == 32 for (x, y), _ in chunks)


def test_checksums_see_every_bit() -> None:
    values = torch.randn(4, 100)
    for place in (0, 57, 99):
        changed = values.clone()
        changed[2, place] = torch.nextafter(values[2, place], torch.tensor(9.0))
        assert (checksum(changed, 4) != checksum(values, 4)).tolist() == [False, False, True, False]
    assert checksum(torch.zeros(1, 3), 1) != checksum(-torch.zeros(1, 3), 1), "zeros of both signs"


def test_a_function_that_mixes_rows_is_applied_one_by_one() -> None:
    function = RowFunction(lambda rows: rows * (1 + rows.mean() * 1e-6), 64)
    rows = torch.rand(20, 7)
    assert torch.equal(function(rows)[3:4], function(rows[3:4]))


@pytest.mark.parametrize(
    "features",
    [lambda: scattering_features((1, 28, 28)), lambda: patch_features((1, 28, 28), False, 8)],
)
def test_features_of_an_image_are_the_same_in_every_batch(features) -> None:
    of, images = features(), torch.rand(37, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    whole = of(images)
    for part in (slice(0, 1), slice(5, 8), slice(20, 37)):
        assert torch.equal(of(images[part]), whole[part])
    assert of(images[:0]).shape == (0, *whole.shape[1:])


def test_the_self_test_finds_what_depends_on_one_place() -> None:
    """Of one output of many, and in the last bit."""

    class Placed(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            scores = super().forward(x).clone()
            if len(x) > 3:
                scores[3, -1] = torch.nextafter(scores[3, -1], torch.tensor(torch.inf))
            return scores

    for module, invariant in ((Placed(9, 40), False), (nn.Linear(9, 40), True)):
        model = FlatModel(module)
        test = SelfTest(
            model,
            lambda x, y, rows, model=model: [model.module(x)],
            "scores",
            torch.zeros(1, 9),
            torch.zeros(1),
        )
        passed = [test.reference(rows, 1) is not None for rows in (32, 64, 96)]
        assert any(passed) == invariant


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30, 1e-42])
def test_features_are_the_same_beside_images_that_are_not_finite(value: float) -> None:
    features = feature_map(scattering_linear(), (1, 16, 16))
    assert features is not None
    images = torch.rand(9, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    beside = images.clone()
    beside[::3] = value
    kept = torch.arange(9) % 3 > 0
    assert torch.equal(features(beside)[kept], features(images)[kept])
