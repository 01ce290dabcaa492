"""A module whose trainable parameters and running statistics are views into one float32 vector."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

from dpfl.codec import canonical, encode
from dpfl.errors import DpflError
from dpfl.lazy_import import nn, torch

if TYPE_CHECKING:
    from torch import Tensor

    from dpfl.tasks import Task

_RUNNING_STATISTICS = ("running_mean", "running_var")
CENTRE = "centre.running_mean"
"""The entry that a model subtracts from its samples, where it has one."""
PAID = ("paid.running_mean", "paid.running_var")
"""The entries by which a model on a table scales its numbers, where it does."""


@dataclass(frozen=True)
class Layout:
    """Where each entry lies in the vector: trainable parameters first, then tracked running
    statistics.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...]
    trainable: int
    size: int

    @property
    def centre(self) -> slice | None:
        return self.span(self.names.index(CENTRE)) if CENTRE in self.names else None

    @property
    def paid(self) -> slice | None:
        """The means, then the variances."""
        spans = [self.span(self.names.index(name)) for name in PAID if name in self.names]
        return slice(spans[0].start, spans[1].stop) if len(spans) == 2 else None

    def span(self, entry: int) -> slice:
        end = self.offsets[entry + 1] if entry + 1 < len(self.offsets) else self.size
        return slice(self.offsets[entry], end)


class FlatModel:
    """Re-points a module's parameters at one vector; frozen parameters and other buffers stay
    constants of the module.

    The task says what its scores are for; without one they are for as many classes as there are, by
    cross-entropy.
    """

    def __init__(self, module: nn.Module, task: Task | None = None) -> None:
        parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        statistics = {
            name: b
            for name, b in module.named_buffers()
            if name.split(".")[-1] in _RUNNING_STATISTICS
        }
        _check(parameters, statistics)
        tensors: list[Tensor] = [*parameters.values(), *statistics.values()]
        ends = (0, *accumulate(tensor.numel() for tensor in tensors))
        self.module = module
        self.task = task
        self.layout = Layout(
            names=(*parameters, *statistics),
            shapes=tuple(tuple(tensor.shape) for tensor in tensors),
            offsets=ends[:-1],
            trainable=ends[len(parameters)],
            size=ends[-1],
        )
        self.parameters: tuple[nn.Parameter, ...] = tuple(parameters.values())
        self.vector = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
        for entry, tensor in enumerate(tensors):
            tensor.data = self.vector[self.layout.span(entry)].view(tensor.shape)
        self._takes_channels_last: bool | None = None

    def load(self, vector: Tensor) -> None:
        if vector.shape != self.vector.shape or vector.dtype != torch.float32:
            raise DpflError(
                f"This model takes a float32 vector of {self.layout.size} numbers, but got "
                f"{vector.dtype} of shape "
                f"{tuple(vector.shape)}; use weights of the same model."
            )
        self.vector.copy_(vector)

    def read(self) -> Tensor:
        return self.vector.clone()

    @property
    def fingerprint(self) -> str:
        """Of what training does not change: the module's structure, layout and constants, and the
        task, which is its loss.
        """
        layout = (
            self.layout.names,
            self.layout.shapes,
            self.layout.offsets,
            self.layout.trainable,
            self.layout.size,
        )
        digest = hashlib.sha256(
            canonical([_structure(self.module), encode(layout), encode(self.task)])
        )
        for name, tensor in chain(self.module.named_parameters(), self.module.named_buffers()):
            if name not in self.layout.names:
                digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
                digest.update(
                    tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
                )
        return digest.hexdigest()

    def arrange(self, x: Tensor) -> Tensor:
        """The batch in the memory order that the module runs fastest on; the numbers and the shape
        do not change.
        """
        if x.dim() != 4 or not x.is_floating_point() or not len(x):
            return x
        if self._takes_channels_last is None:
            self._takes_channels_last = self._try_channels_last(x.new_zeros(2, *x.shape[1:]))
        return _channels_last(x) if self._takes_channels_last else x

    def _try_channels_last(self, x: Tensor) -> bool:
        """A module may call `.view(...)` on activations, which torch refuses for channels-last
        ones: try, once.
        """
        if not any(isinstance(layer, nn.Conv2d) for layer in self.module.modules()):
            return False
        try:
            with evaluating(self.module):
                self.module(_channels_last(x))
        except RuntimeError:
            return False
        return True


def _structure(module: nn.Module) -> list[Any]:
    """A module as its kind, its settings as torch shows them, and its children by name.

    The kind is the name of the class, or what the class says it is `written_as`, so that a class
    can be renamed.
    """
    kind = getattr(type(module), "written_as", type(module).__name__)
    return [
        kind,
        module.extra_repr(),
        [[name, _structure(child)] for name, child in module.named_children()],
    ]


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Forward passes that leave no trace: evaluation mode, no gradients, torch's random state put
    back.
    """
    modes = [(layer, layer.training) for layer in module.modules()]
    module.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            yield
    finally:
        for layer, mode in modes:
            layer.training = mode


def _channels_last(x: Tensor) -> Tensor:
    # `contiguous(memory_format=...)` keeps the strides of one-channel images, and the layers after
    # would not follow.
    return torch.empty_like(x, memory_format=torch.channels_last).copy_(x)


def _check(parameters: dict[str, nn.Parameter], statistics: dict[str, Tensor]) -> None:
    if not parameters:
        raise DpflError(
            "The model has no trainable parameters; leave requires_grad on for what is to be "
            "trained."
        )
    for name, tensor in (*parameters.items(), *statistics.items()):
        if isinstance(
            tensor, nn.parameter.UninitializedParameter | nn.parameter.UninitializedBuffer
        ):
            raise DpflError(
                f"{name} has no shape yet; run the lazy model once on a sample before training."
            )
        if tensor.dtype != torch.float32:
            raise DpflError(
                f"{name} is {tensor.dtype}, but training is in float32; call .float() on the model."
            )
    if len({tensor.device for tensor in (*parameters.values(), *statistics.values())}) > 1:
        raise DpflError("The model lies on several devices; move it to one with .to(device).")
