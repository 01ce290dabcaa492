import logging
import math
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpfl import models
from dpfl.errors import DpflError
from dpfl.gradients.clipped import ClippedGradients, NonFinite
from dpfl.gradients.losses import plain_gradient
from dpfl.gradients.passes.layer_pass import LayerPass
from dpfl.gradients.passes.row_pass import RowPass
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


@pytest.fixture(autouse=True)
def _same_weights_every_time() -> Iterator[None]:
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


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


@pytest.mark.parametrize("groups", [[], [[0]], [[0, 1], [1]], [[0, 1, 2]], [[0, 1], []]])
def test_groups_must_cover_every_parameter_once(groups: list[list[int]]) -> None:
    with pytest.raises(DpflError, match="exactly once"):
        ClippedGradients(FlatModel(nn.Linear(2, 2)), groups)


def test_chunks_add_up() -> None:
    module = models.cnn().build((1, 28, 28), 10, 0)
    x, y = batch(7, 1, 28, 28, classes=10)
    whole = ClippedGradients(FlatModel(module))(x, y, clip(1))
    parts = ClippedGradients(FlatModel(module), chunk=3)(x, y, clip(1))
    assert close(parts.total, whole.total)
    assert close(parts.norms, whole.norms)
    assert close(parts.losses, whole.losses)


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


def test_empty_batch() -> None:
    model = FlatModel(nn.Linear(3, 2))
    found = ClippedGradients(model, [[0], [1]])(
        torch.zeros(0, 3), torch.zeros(0, dtype=torch.long), clip(1)
    )
    assert torch.equal(found.total, torch.zeros(8, dtype=torch.float64))
    assert found.norms.shape == (0, 2)
    assert found.losses.shape == (0,)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, CLASSES)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.second(self.first(x).tanh()))


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(5, 5), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(self.inner(x).tanh()))


class Borrowing(Twice):
    """Uses a layer's weight besides its call."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(x).tanh() @ self.inner.weight)


class Functional(Twice):
    """Never calls the layer, only uses its weight."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x @ self.inner.weight)


class Discarding(Twice):
    """Calls the layer for nothing, and uses its weight."""

    def forward(self, x: Tensor) -> Tensor:
        self.inner(x)
        return self.head(F.linear(x, self.inner.weight, self.inner.bias))


class Folding(Twice):
    """Folds a sequence into the batch."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(x.view(-1, 5)).view(len(x), -1, 5).tanh().mean(1))


class SequenceFirst(Twice):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(x.transpose(0, 1)).tanh().mean(0))


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale, self.head = nn.Parameter(torch.ones(5) * 0.7), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x * self.scale)


class Branching(nn.Module):
    """Control flow that depends on a sample, which vmap cannot follow."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.head = nn.Parameter(torch.ones(5)), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        rows = [row * self.scale if float(row.sum()) > 0 else row.sin() * self.scale for row in x]
        return self.head(torch.stack(rows))


class TwoConvolutions(nn.Module):
    """A convolution called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Conv2d(2, 2, 3, padding=1), nn.Linear(72, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(self.inner(x).tanh()).flatten(1))


class Subclass(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def normed() -> nn.Module:
    return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(5, CLASSES)))


def scaled() -> nn.Module:
    layer = nn.Linear(5, CLASSES)
    layer.forward = lambda x: 3 * F.linear(x, layer.weight, layer.bias)  # type: ignore[method-assign]
    return nn.Sequential(layer)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (Tied, (5,)),
        (Borrowing, (5,)),
        (Functional, (5,)),
        (Discarding, (5,)),
        (Folding, (3, 5)),
        (SequenceFirst, (7, 5)),
        (SequenceFirst, (3, 5)),
        (Own, (5,)),
        (Branching, (5,)),
        (lambda: Subclass(5, CLASSES), (5,)),
        (normed, (5,)),
        (scaled, (5,)),
        (
            lambda: nn.Sequential(nn.Conv3d(2, 3, 2), nn.Flatten(), nn.Linear(3, CLASSES)),
            (2, 2, 2, 2),
        ),
        (lambda: TwoConvolutions(), (2, 6, 6)),
    ],
)
def test_other_modules_fall_back(
    make: Callable[[], nn.Module], shape: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "dpfl"):
        computed = check(make(), *batch(7, *shape), chunk=4)
    assert isinstance(computed.passes.current, RowPass)
    assert sum("by torch.func" in record.message for record in caplog.records) == 1
    one_at_a_time = sum("one by one" in record.message for record in caplog.records)
    assert one_at_a_time == (1 if make is Branching else 0)


def test_in_place_activations_do_not_deceive() -> None:
    module = nn.Sequential(
        nn.Conv2d(2, 4, 3),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(36, 6),
        nn.ReLU(inplace=True),
        nn.Linear(6, CLASSES),
    )
    assert isinstance(check(module, *batch(7, 2, 5, 5)).passes.current, LayerPass)
    check(
        nn.Sequential(nn.Linear(5, 6), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(12, CLASSES)),
        *batch(7, 2, 5),
    )


def test_a_users_hook_on_a_layer_is_kept_and_counted_in() -> None:
    module = nn.Sequential(nn.Linear(5, 6), nn.Linear(6, CLASSES))
    handle = module[0].register_forward_hook(lambda layer, inputs, output: 3 * output)
    x, y = batch(7, 5)
    rows = one_by_one(module, x, y)
    found = ClippedGradients(FlatModel(module))(x, y, clip(1))
    assert bounds(found.norms[:, 0], rows.norm(dim=1))
    assert list(module[0]._forward_hooks) == [handle.id]


def test_a_linear_layer_may_be_called_several_times() -> None:
    assert isinstance(check(Twice(), *batch(7, 5)).passes.current, LayerPass)


def test_an_unused_layer_has_a_zero_gradient() -> None:
    class Spare(Twice):
        def forward(self, x: Tensor) -> Tensor:
            return self.head(x)

    assert isinstance(check(Spare(), *batch(7, 5)).passes.current, LayerPass)


def test_frozen_parameters_are_left_out() -> None:
    module = nn.Sequential(
        nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, CLASSES), nn.Tanh(), nn.Linear(CLASSES, CLASSES)
    )
    module[0].requires_grad_(False)
    module[2].bias.requires_grad_(False)
    module[4].weight.requires_grad_(False)
    assert isinstance(check(module, *batch(7, 5)).passes.current, LayerPass)


def test_a_module_that_calls_view_on_images() -> None:
    class Viewing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(2, 3, 3), nn.Linear(27, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.conv(x).view(len(x), -1))

    assert isinstance(check(Viewing(), *batch(7, 2, 5, 5)).passes.current, LayerPass)


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


class Dropping(nn.Module):
    """Draws in its forward pass, by a layer that is known as part of a chain only."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(5, 16), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.dropout(self.first(x), 0.5, self.training))


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


def test_factors_are_checked() -> None:
    computed = ClippedGradients(FlatModel(nn.Linear(5, CLASSES)))
    with pytest.raises(NonFinite, match="factor"):
        computed(*batch(7, 5), lambda norms: norms / 0)
    with pytest.raises(DpflError, match=r"shape \([17], 1\)"):
        computed(*batch(7, 5), lambda norms: norms.squeeze())


def test_no_hooks_are_left_after_an_exception() -> None:
    class Failing(Twice):
        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                raise RuntimeError("on purpose")
            return self.head(self.inner(x))

    module = Failing()
    with pytest.raises(RuntimeError, match="on purpose"):
        ClippedGradients(FlatModel(module))(*batch(7, 5), clip(1))
    assert hooks_of(module) == 0


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


@pytest.mark.parametrize("norm", [nn.GroupNorm(2, 4), nn.BatchNorm2d(4)], ids=str)
def test_plain_gradient_is_the_mean_gradient(norm: nn.Module) -> None:
    module = nn.Sequential(
        nn.Conv2d(1, 4, 3), norm, nn.Tanh(), nn.Flatten(), nn.Linear(144, CLASSES)
    )
    x, y = batch(7, 1, 8, 8)
    loss = F.cross_entropy(module(x), y)
    expected = torch.cat(
        [gradient.flatten() for gradient in torch.autograd.grad(loss, list(module.parameters()))]
    )
    model = FlatModel(module)
    before = model.read()
    found, value = plain_gradient(model, x, y)
    assert close(found, expected)
    assert value == pytest.approx(float(loss.detach()), rel=1e-5)
    changed = model.vector != before
    assert not changed[: model.layout.trainable].any()
    assert changed[model.layout.trainable :].all()


def test_plain_gradient_of_nothing() -> None:
    gradient, loss = plain_gradient(
        FlatModel(nn.Linear(3, 2)), torch.zeros(0, 3), torch.zeros(0, dtype=torch.long)
    )
    assert torch.equal(gradient, torch.zeros(8))
    assert loss == 0.0
