"""What the clipped sums of the tests are held against: gradients sample by sample, and Opacus."""

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpfl.gradients.clipped import ClippedGradients
from dpfl.gradients.passes.chain import ChainPass
from dpfl.gradients.passes.layer_pass import LayerPass
from dpfl.gradients.unit_gradients import UnsupportedLayer
from dpfl.models import FlatModel

CLASSES = 4


@contextmanager
def one_thread_and_seed() -> Iterator[None]:
    """Modules made inside have the same weights every time."""
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def clip(bound: float) -> Callable[[Tensor], Tensor]:
    return lambda norms: bound / norms.clamp_min(bound)


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
    return torch.cat(
        [parameter.grad_sample.flatten(1) for parameter in wrapped.parameters()], dim=1
    )


def close(found: Tensor, expected: Tensor, tolerance: float = 1e-5) -> bool:
    scale = max(float(expected.abs().max()) if expected.numel() else 0.0, 1e-3)
    return (
        found.shape == expected.shape
        and float((found - expected).abs().amax() if found.numel() else 0.0) <= tolerance * scale
    )


def bounds(found: Tensor, norms: Tensor) -> bool:
    """Whether what was found are upper bounds on these norms, and close ones; the references are
    rounded themselves.
    """
    scale = max(float(norms.abs().max()) if norms.numel() else 0.0, 1e-3)
    above = found - norms
    return found.shape == norms.shape and bool(
        (above >= -1e-5 * scale).all() and (above <= 2e-2 * norms + 1e-5 * scale).all()
    )


def smooth(module: nn.Module) -> nn.Module:
    """Where rounding puts an activation on the other side of a ReLU's kink, gradients rightly
    differ by 1e-3.
    """
    for name, layer in list(module.named_modules()):
        if isinstance(layer, nn.ReLU | nn.ReLU6):
            module.set_submodule(name, nn.GELU())
    return module


def hooks_of(module: nn.Module) -> int:
    return sum(len(layer._forward_hooks) + len(layer._backward_hooks) for layer in module.modules())


def check(
    module: nn.Module, x: Tensor, y: Tensor, rows: Tensor | None = None, **options: object
) -> ClippedGradients:
    """By hand where the model is a chain, then by the rules and hooks that take any model."""
    rows = one_by_one(module, x, y) if rows is None else rows
    computed = ClippedGradients(FlatModel(module), **options)  # type: ignore[arg-type]
    compare(computed, x, y, rows)
    if isinstance(computed.passes.current, ChainPass):
        computed.passes.fall_back(UnsupportedLayer("not chosen here"))
        compare(computed, x, y, rows)
    return computed


def compare(computed: ClippedGradients, x: Tensor, y: Tensor, rows: Tensor) -> None:
    """Against the rows of a reference: norms, losses, and sums with no, some and every sample
    clipped.
    """
    norms = rows.double().norm(dim=1)
    for bound in (1e9, float(norms.median()) if len(norms) else 1.0, 1e-3):
        found = computed(x, y, clip(bound))
        assert bounds(found.norms, norms[:, None])
        assert close(found.total, clip(bound)(found.norms[:, 0]) @ rows.double())
        assert found.losses.shape == (len(x),)
        assert not found.total.requires_grad
    for part, matrix in computed.rows(x, y):
        assert close(matrix, rows[part])
    assert hooks_of(computed.model.module) == 0


def by_rule(module: nn.Module, x: Tensor, y: Tensor, **options: object) -> None:
    """Checks a module, and that a rule for each of its layers did it."""
    assert isinstance(check(module, x, y, **options).passes.current, LayerPass)
