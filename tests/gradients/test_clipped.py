"""Clipped sums of whole models against gradients sample by sample, and what is refused."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from dpfl import models
from dpfl.errors import DpflError
from dpfl.gradients.clip_factors import NonFinite
from dpfl.gradients.clipped import ClippedGradients
from dpfl.gradients.passes.layer_pass import LayerPass
from dpfl.models import FlatModel
from tests.gradients.gradient_reference import (
    CLASSES,
    batch,
    bounds,
    by_opacus,
    check,
    clip,
    close,
    hooks_of,
    one_by_one,
    smooth,
)
from tests.gradients.modules import Dropping, Own, Twice

pytestmark = pytest.mark.usefixtures("same_weights")


@pytest.mark.parametrize(
    ("model", "shape", "size"),
    [
        (models.mlp(), (1, 28, 28), 7),
        (models.cnn(), (1, 28, 28), 7),
        (models.cnn(), (3, 32, 32), 7),
        (models.cnn_wide(), (1, 28, 28), 5),
        (models.cnn_wide(), (3, 32, 32), 3),
        (models.alexnet(), (3, 32, 32), 2),
        (models.mobilenet_v2(), (1, 16, 16), 2),
        (models.resnet18(), (3, 8, 8), 2),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_catalogue_equals_both_references(
    model: models.Model, shape: tuple[int, ...], size: int
) -> None:
    module = smooth(model.build(shape, 10, 0))
    x, y = batch(size, *shape, classes=10)
    rows = one_by_one(module, x, y)
    assert close(by_opacus(module, x, y), rows)
    assert isinstance(check(module, x, y, rows).passes.current, LayerPass)


def test_per_layer_groups() -> None:
    module = models.cnn().build((1, 28, 28), 10, 0)
    x, y = batch(7, 1, 28, 28, classes=10)
    rows = one_by_one(module, x, y)
    model = FlatModel(module)
    groups = [(0, 1), (2, 7), (3,), (4, 5, 6)]
    norms = torch.stack(
        [
            torch.cat([rows[:, model.layout.span(entry)] for entry in group], dim=1).norm(dim=1)
            for group in groups
        ],
        dim=1,
    )
    levels = norms.double().median(dim=0).values
    found = ClippedGradients(model, groups)(x, y, lambda found: levels / found.maximum(levels))
    expected = torch.empty(model.layout.trainable, dtype=torch.float64)
    for column, group in enumerate(groups):
        for entry in group:
            span = model.layout.span(entry)
            expected[span] = (levels / found.norms.maximum(levels))[:, column] @ rows[
                :, span
            ].double()
    assert bounds(found.norms, norms)
    assert close(found.total, expected)


def test_chunks_add_up() -> None:
    module = models.cnn().build((1, 28, 28), 10, 0)
    x, y = batch(7, 1, 28, 28, classes=10)
    whole = ClippedGradients(FlatModel(module))(x, y, clip(1))
    parts = ClippedGradients(FlatModel(module), chunk=3)(x, y, clip(1))
    assert close(parts.total, whole.total)
    assert close(parts.norms, whole.norms)
    assert close(parts.losses, whole.losses)


def test_empty_batch() -> None:
    model = FlatModel(nn.Linear(3, 2))
    found = ClippedGradients(model, [[0], [1]])(
        torch.zeros(0, 3), torch.zeros(0, dtype=torch.long), clip(1)
    )
    assert torch.equal(found.total, torch.zeros(8, dtype=torch.float64))
    assert found.norms.shape == (0, 2)
    assert found.losses.shape == (0,)


def test_dropout_uses_torchs_random_state() -> None:
    module = nn.Sequential(nn.Linear(5, 50), nn.Dropout(), nn.Linear(50, CLASSES))
    computed = ClippedGradients(FlatModel(module))
    x, y = batch(7, 5)
    computed(x, y, clip(1))
    torch.manual_seed(3)
    first, second = computed(x, y, clip(1)), computed(x, y, clip(1))
    torch.manual_seed(3)
    again = computed(x, y, clip(1))
    assert torch.equal(first.total, again.total)
    assert not torch.equal(first.total, second.total)
    assert module.training


def in_turn(kept: Tensor) -> Callable[[Tensor], Tensor]:
    """Clips to 1 and drops the samples that are not kept, in whatever chunks this processor
    computes them.
    """
    left = iter(kept.tolist())
    return lambda norms: clip(1.0)(norms) * torch.tensor([next(left) for _ in norms])[:, None]


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Linear(5, CLASSES),
        lambda: nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, CLASSES)),
        Dropping,
        lambda: Dropping().eval(),
        Own,
    ],
    ids=["chain", "chain with dropout", "layers with dropout", "layers", "rows"],
)
@pytest.mark.parametrize("bad", [math.nan, math.inf, 3e19, 1e30])
def test_a_sample_without_a_finite_gradient_counts_as_nothing(
    make: Callable[[], nn.Module], bad: float
) -> None:
    module = make()
    model = FlatModel(module)
    x, y = batch(7, 5)
    spoilt, kept = x.clone(), torch.arange(7) != 2
    spoilt[2, 3] = bad
    computed = ClippedGradients(model)
    computed(x, y, clip(1.0))  # whatever is tried on the first batch alone
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        found = computed(spoilt, y, clip(1.0))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        whole = computed(x, y, in_turn(kept))
    assert torch.allclose(found.total, whole.total, rtol=1e-12, atol=1e-14), (
        "the sum over the others, draws included"
    )
    assert torch.equal(found.norms[kept], whole.norms[kept])
    assert found.norms[2] == found.losses[2] == 0
    rows = torch.cat([rows for _, rows in computed.rows(spoilt, y)])
    assert torch.isfinite(rows).all()
    assert math.isfinite(bad) or not rows[2].any()
    assert hooks_of(module) == 0


def test_samples_without_a_finite_gradient_are_nothing_together() -> None:
    x, y = batch(3, 5)
    found = ClippedGradients(FlatModel(nn.Linear(5, CLASSES)))(x * 1e30, y, clip(1.0))
    assert not found.total.any()
    assert not found.norms.any()


@pytest.mark.parametrize(
    "make", [lambda: nn.Linear(5, CLASSES), Twice, Own], ids=["chain", "layers", "rows"]
)
def test_weights_that_are_not_finite_raise(make: Callable[[], nn.Module]) -> None:
    model = FlatModel(make())
    computed, (x, y) = ClippedGradients(model), batch(7, 5)
    computed(x, y, clip(1.0))
    model.vector[0] = math.inf
    with pytest.raises(NonFinite, match="lower the learning rate"):
        computed(x, y, clip(1.0))
    with pytest.raises(NonFinite, match="lower the learning rate"):
        list(computed.rows(x, y))


def behind_a_relu() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 3, bias=False), nn.ReLU(), nn.Linear(3, CLASSES))


@pytest.mark.parametrize("samples", [0, 7])
def test_weights_that_are_not_finite_raise_whatever_the_samples_are(samples: int) -> None:
    """A weight of -inf behind a ReLU is seen by some samples only, and no weight by an empty batch:
    neither may be told.
    """
    model = FlatModel(behind_a_relu())
    computed, (x, y) = ClippedGradients(model), batch(samples, 5)
    model.vector[:5] = -math.inf
    with pytest.raises(NonFinite, match="lower the learning rate"):
        computed(x.abs() + 1, y, clip(1.0))
    with pytest.raises(NonFinite, match="lower the learning rate"):
        list(computed.rows(x.abs() + 1, y))


@pytest.mark.parametrize("make", [nn.Sequential, Dropping], ids=["chain", "layers"])
def test_samples_that_are_finite_by_the_luck_of_dropout_raise_nothing(
    make: Callable[..., nn.Module],
) -> None:
    layers = (nn.Dropout(0.5), nn.Linear(5, CLASSES))
    computed = ClippedGradients(FlatModel(make(*layers) if make is nn.Sequential else Dropping()))
    x = torch.ones(2, 5)
    x[:, 0] = 3e19
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        found = [computed(x, torch.zeros(2, dtype=torch.int64), clip(1.0)) for _ in range(20)]
    assert all(torch.isfinite(one.total).all() and one.total.norm() <= 2 for one in found)


def test_mistakes_are_explained() -> None:
    x, y = batch(7, 5)
    with pytest.raises(DpflError, match="GroupNorm"):
        ClippedGradients(FlatModel(nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4))))
    computed = ClippedGradients(FlatModel(nn.Linear(5, CLASSES)))
    with pytest.raises(DpflError, match="7 samples and 6 labels"):
        computed(x, y[:6], clip(1))
    with pytest.raises(DpflError, match="chunk"):
        ClippedGradients(FlatModel(nn.Linear(5, CLASSES)), chunk=0)
    with pytest.raises(DpflError, match="a row for each sample"):
        ClippedGradients(FlatModel(nn.Sequential(nn.Linear(5, CLASSES), nn.Flatten(0))))(
            x, y, clip(1)
        )
