import copy
import logging
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dpfl import models
from dpfl.client import layer_gradients
from dpfl.client.gradients import ClippedGradients, NonFinite, plain_gradient
from dpfl.client.sample_gradients import LayerPass, RowPass
from dpfl.errors import DpflError
from dpfl.models import FlatModel

CLASSES = 4


def clip(bound: float) -> Callable[[Tensor], Tensor]:
    return lambda norms: bound / norms.clamp_min(bound)


@pytest.fixture(autouse=True)
def _same_weights_every_time() -> None:
    torch.manual_seed(0)


def batch(size: int, *shape: int, classes: int = CLASSES, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    # Samples of unlike scale, so that a bound binds for some and not for others.
    scale = torch.linspace(0.2, 2, size).view(-1, *[1] * len(shape))
    x = torch.randn(size, *shape, generator=generator) * scale
    return x, torch.randint(0, classes, (size,), generator=generator)


def one_by_one(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    rows = [torch.zeros(0, sum(parameter.numel() for parameter in parameters))]
    for sample, label in zip(x, y, strict=True):
        loss = F.cross_entropy(module(sample[None]), label[None])
        gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
        rows.append(torch.cat([gradient.flatten() for gradient in gradients])[None])
    return torch.cat(rows)


def by_opacus(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    from opacus import GradSampleModule

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrapped = GradSampleModule(copy.deepcopy(module), loss_reduction="sum")
        F.cross_entropy(wrapped(x), y, reduction="sum").backward()
    return torch.cat([parameter.grad_sample.flatten(1) for parameter in wrapped.parameters()], dim=1)


def close(found: Tensor, expected: Tensor, tolerance: float = 1e-5) -> bool:
    scale = max(float(expected.abs().max()) if expected.numel() else 0.0, 1e-3)
    return (
        found.shape == expected.shape and float((found - expected).abs().amax() if found.numel() else 0.0) <= tolerance * scale
    )


def smooth(module: nn.Module) -> nn.Module:
    """Where rounding puts an activation on the other side of a ReLU's kink, gradients rightly differ by 1e-3."""
    for name, layer in list(module.named_modules()):
        if isinstance(layer, nn.ReLU | nn.ReLU6):
            module.set_submodule(name, nn.GELU())
    return module


def hooks_of(module: nn.Module) -> int:
    return sum(len(layer._forward_hooks) + len(layer._backward_hooks) for layer in module.modules())


def check(module: nn.Module, x: Tensor, y: Tensor, rows: Tensor | None = None, **options: object) -> ClippedGradients:
    """Against the rows of a reference: norms, losses, and sums with no, some and every sample clipped."""
    model = FlatModel(module)
    rows = one_by_one(module, x, y) if rows is None else rows
    computed = ClippedGradients(model, **options)  # type: ignore[arg-type]
    norms = rows.double().norm(dim=1).float()
    for bound in (1e9, float(norms.median()) if len(norms) else 1.0, 1e-3):
        found = computed(x, y, clip(bound))
        assert close(found.norms, norms[:, None])
        assert close(found.total, clip(bound)(norms) @ rows)
        assert found.losses.shape == (len(x),)
        assert not found.total.requires_grad
    assert hooks_of(module) == 0
    return computed


@pytest.mark.parametrize(
    ("model", "shape", "size"),
    [
        (models.mlp(), (1, 28, 28), 7),
        (models.cnn(), (1, 28, 28), 7),
        (models.cnn(), (3, 32, 32), 7),
        (models.cnn_wide(), (1, 28, 28), 5),
        (models.cnn_wide(), (3, 32, 32), 3),
        (models.alexnet(), (3, 32, 32), 3),
        (models.mobilenet_v2(), (1, 28, 28), 3),
        (models.resnet18(), (3, 16, 16), 3),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_catalogue_equals_both_references(model: models.Model, shape: tuple[int, ...], size: int) -> None:
    module = smooth(model.build(shape, 10, 0))
    x, y = batch(size, *shape, classes=10)
    rows = one_by_one(module, x, y)
    assert close(by_opacus(module, x, y), rows)
    assert isinstance(check(module, x, y, rows)._pass, LayerPass)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_convolution(data: st.DataObject) -> None:
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
    module = nn.Sequential(conv, nn.Tanh(), nn.AdaptiveAvgPool2d((2, 1)), nn.Flatten(), nn.Linear(2 * width, CLASSES))
    size = data.draw(st.sampled_from([0, 1, 7]))
    check(module, *batch(size, channels, *pair(6, 9)))


@pytest.mark.parametrize("advantage", [0, 10**9])
@pytest.mark.parametrize("keep", [0, 10**9])
@pytest.mark.parametrize("groups", [1, 2])
def test_ghost_or_written_out_kept_or_recomputed(
    monkeypatch: pytest.MonkeyPatch, advantage: int, keep: int, groups: int
) -> None:
    monkeypatch.setattr(layer_gradients, "_GRAM_ADVANTAGE", advantage)
    monkeypatch.setattr(layer_gradients, "_KEEP", keep)
    monkeypatch.setattr(layer_gradients, "_BLOCK", 500)
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


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.Sequential(nn.Linear(5, 6, bias=False), nn.Flatten(), nn.Linear(18, CLASSES)), (3, 5)),
        (lambda: nn.Sequential(nn.Linear(5, 6), nn.Flatten(), nn.Linear(72, CLASSES)), (3, 4, 5)),
        (lambda: nn.Sequential(nn.LayerNorm(5), nn.Flatten(), nn.Linear(15, CLASSES)), (3, 5)),
        (lambda: nn.Sequential(nn.LayerNorm((3, 5)), nn.Flatten(), nn.Linear(15, CLASSES)), (3, 5)),
        (lambda: nn.Sequential(nn.LayerNorm(5, bias=False), nn.Flatten(), nn.Linear(15, CLASSES)), (3, 5)),
        (lambda: nn.Sequential(nn.LayerNorm(5, elementwise_affine=False), nn.Linear(5, CLASSES)), (5,)),
        (lambda: nn.Sequential(nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(36, CLASSES)), (4, 3, 3)),
        (lambda: nn.Sequential(nn.GroupNorm(2, 6), nn.Linear(6, CLASSES)), (6,)),
        (lambda: nn.Sequential(nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(12, CLASSES)), (4, 3)),
    ],
)
def test_other_layers(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    assert isinstance(check(make(), *batch(7, *shape))._pass, LayerPass)


@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}, {"sparse": True}])
def test_embedding_with_repeated_words(options: dict[str, object]) -> None:
    module = nn.Sequential(nn.Embedding(6, 3, **options), nn.Flatten(), nn.Linear(15, CLASSES))
    x = torch.randint(0, 6, (7, 5), generator=torch.Generator().manual_seed(0))
    dense = copy.deepcopy(module)
    dense[0].sparse = False
    y = batch(7, 1)[1]
    assert isinstance(check(module, x, y, one_by_one(dense, x, y))._pass, LayerPass)


def test_per_layer_groups() -> None:
    module = models.cnn().build((1, 28, 28), 10, 0)
    x, y = batch(7, 1, 28, 28, classes=10)
    rows = one_by_one(module, x, y)
    model = FlatModel(module)
    groups = [(0, 1), (2, 7), (3,), (4, 5, 6)]
    norms = torch.stack(
        [torch.cat([rows[:, model.layout.span(entry)] for entry in group], dim=1).norm(dim=1) for group in groups], dim=1
    )
    bounds = norms.median(dim=0).values
    found = ClippedGradients(model, groups)(x, y, lambda found: bounds / found.maximum(bounds))
    expected = torch.empty(model.layout.trainable)
    for column, group in enumerate(groups):
        for entry in group:
            span = model.layout.span(entry)
            expected[span] = (bounds / norms.maximum(bounds))[:, column] @ rows[:, span]
    assert close(found.norms, norms)
    assert close(found.total, expected)


@pytest.mark.parametrize("groups", [[], [[0]], [[0, 1], [1]], [[0, 1, 2]], [[0, 1], []]])
def test_groups_must_cover_every_parameter_once(groups: list[list[int]]) -> None:
    with pytest.raises(DpflError, match="exactly once"):
        ClippedGradients(FlatModel(nn.Linear(2, 2)), groups)


def test_norms_of_many_numbers_are_not_low() -> None:
    rows = torch.randn(2, 4_000_000)
    found = layer_gradients.written_out(rows).squares.sqrt()
    assert torch.allclose(found.double(), rows.double().norm(dim=1), rtol=1e-6)


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
    found = ClippedGradients(model, [[0], [1]])(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long), clip(1))
    assert torch.equal(found.total, torch.zeros(8))
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


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(5, 3, batch_first=True), nn.Linear(3, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(6, 2, batch_first=True), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.attention(x, x, x)[0].mean(1))


class Branching(nn.Module):
    """Data-dependent control flow, which vmap cannot follow."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.head = nn.Parameter(torch.ones(5)), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x * self.scale if float(x.sum()) > 0 else x.sin() * self.scale)


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
        (Twice, (5,)),
        (Borrowing, (5,)),
        (Functional, (5,)),
        (Discarding, (5,)),
        (Folding, (3, 5)),
        (SequenceFirst, (7, 5)),
        (SequenceFirst, (3, 5)),
        (Own, (5,)),
        (Recurrent, (4, 5)),
        (Attending, (4, 6)),
        (Branching, (5,)),
        (lambda: Subclass(5, CLASSES), (5,)),
        (normed, (5,)),
        (scaled, (5,)),
        (lambda: nn.Sequential(nn.Conv1d(2, 3, 2), nn.Flatten(), nn.Linear(9, CLASSES)), (2, 4)),
    ],
)
def test_other_modules_fall_back(
    make: Callable[[], nn.Module], shape: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "dpfl"):
        computed = check(make(), *batch(7, *shape), chunk=4)
    assert isinstance(computed._pass, RowPass)
    assert sum("by torch.func" in record.message for record in caplog.records) == 1
    one_at_a_time = sum("one by one" in record.message for record in caplog.records)
    assert one_at_a_time == (1 if make is Branching else 0) or make is Recurrent


def test_in_place_activations_do_not_deceive() -> None:
    module = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(36, 6), nn.ReLU(inplace=True), nn.Linear(6, CLASSES)
    )
    assert isinstance(check(module, *batch(7, 2, 5, 5))._pass, LayerPass)
    check(nn.Sequential(nn.Linear(5, 6), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(12, CLASSES)), *batch(7, 2, 5))


def test_a_users_hook_on_a_layer_is_kept_and_counted_in() -> None:
    module = nn.Sequential(nn.Linear(5, 6), nn.Linear(6, CLASSES))
    handle = module[0].register_forward_hook(lambda layer, inputs, output: 3 * output)
    x, y = batch(7, 5)
    rows = one_by_one(module, x, y)
    found = ClippedGradients(FlatModel(module))(x, y, clip(1))
    assert close(found.norms[:, 0], rows.norm(dim=1))
    assert list(module[0]._forward_hooks) == [handle.id]


def test_an_unused_layer_has_a_zero_gradient() -> None:
    class Spare(Twice):
        def forward(self, x: Tensor) -> Tensor:
            return self.head(x)

    assert isinstance(check(Spare(), *batch(7, 5))._pass, LayerPass)


def test_frozen_parameters_are_left_out() -> None:
    module = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, CLASSES), nn.Tanh(), nn.Linear(CLASSES, CLASSES))
    module[0].requires_grad_(False)
    module[2].bias.requires_grad_(False)
    module[4].weight.requires_grad_(False)
    assert isinstance(check(module, *batch(7, 5))._pass, LayerPass)


def test_a_module_that_calls_view_on_images() -> None:
    class Viewing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(2, 3, 3), nn.Linear(27, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.conv(x).view(len(x), -1))

    assert isinstance(check(Viewing(), *batch(7, 2, 5, 5))._pass, LayerPass)


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


@pytest.mark.parametrize("make", [lambda: nn.Linear(5, CLASSES), Own])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e30])
def test_non_finite_gradients_raise(make: Callable[[], nn.Module], bad: float) -> None:
    module = make()
    x, y = batch(7, 5)
    x[2, 3] = bad
    with pytest.raises(NonFinite):
        ClippedGradients(FlatModel(module))(x, y, lambda norms: torch.zeros_like(norms))
    assert hooks_of(module) == 0


def test_factors_are_checked() -> None:
    computed = ClippedGradients(FlatModel(nn.Linear(5, CLASSES)))
    with pytest.raises(NonFinite, match="factor"):
        computed(*batch(7, 5), lambda norms: norms / 0)
    with pytest.raises(DpflError, match=r"shape \(7, 1\)"):
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
        ClippedGradients(FlatModel(nn.Sequential(nn.Linear(5, CLASSES), nn.Flatten(0))))(x, y, clip(1))


@pytest.mark.parametrize("norm", [nn.GroupNorm(2, 4), nn.BatchNorm2d(4)], ids=str)
def test_plain_gradient_is_the_mean_gradient(norm: nn.Module) -> None:
    module = nn.Sequential(nn.Conv2d(1, 4, 3), norm, nn.Tanh(), nn.Flatten(), nn.Linear(144, CLASSES))
    x, y = batch(7, 1, 8, 8)
    loss = F.cross_entropy(module(x), y)
    expected = torch.cat([gradient.flatten() for gradient in torch.autograd.grad(loss, list(module.parameters()))])
    model = FlatModel(module)
    before = model.read()
    found, value = plain_gradient(model, x, y)
    assert close(found, expected)
    assert value == pytest.approx(float(loss.detach()), rel=1e-5)
    changed = model.vector != before
    assert not changed[: model.layout.trainable].any()
    assert changed[model.layout.trainable :].all()


def test_plain_gradient_of_nothing() -> None:
    gradient, loss = plain_gradient(FlatModel(nn.Linear(3, 2)), torch.zeros(0, 3), torch.zeros(0, dtype=torch.long))
    assert torch.equal(gradient, torch.zeros(8))
    assert loss == 0.0
