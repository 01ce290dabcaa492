"""Memory that steps share carries nothing from one to the next."""

import pytest
import torch

from dpfl import models
from dpfl.gradients import scratch
from dpfl.gradients.clipped import ClippedGradients
from dpfl.models import FlatModel
from tests.gradients.gradient_reference import batch, clip, close

pytestmark = pytest.mark.usefixtures("same_weights")


def test_memory_kept_between_batches_carries_nothing_over() -> None:
    module = models.cnn().build((1, 28, 28), 10, 0)
    computed = ClippedGradients(FlatModel(module))
    batches = [batch(size, 1, 28, 28, classes=10, seed=size) for size in (3, 20, 7, 20)]
    found = [computed(x, y, clip(1)) for x, y in batches]
    matrices = [torch.cat([matrix for _, matrix in computed.rows(x, y)]) for x, y in batches]
    for (x, y), part, matrix in zip(batches, found, matrices, strict=True):
        fresh = ClippedGradients(FlatModel(module))(x, y, clip(1))
        assert close(part.total, fresh.total)
        assert close(clip(1)(part.norms[:, 0]) @ matrix.double(), fresh.total)


def test_a_step_gives_out_the_memory_of_the_step_before_it() -> None:
    memory, like = scratch.Scratch(), torch.zeros(1)
    addresses = []
    for _ in range(3):
        with memory.step():
            with scratch.temporary():
                inner = scratch.empty(like, 2).data_ptr()
            outer = [scratch.empty(like, *shape).data_ptr() for shape in ((3, 5), (2,))]
            addresses.append([inner, *outer])
            assert scratch.empty(like.double(), 2).dtype == torch.float64
    assert addresses[1] == addresses[2]
    inner, first, second = addresses[2]
    assert inner == first, "what was temporary is given out again"
    assert second != first
