"""A model as one flat float32 vector and a layout.

`FlatModel` re-points every trainable parameter and every running statistic of a module at one
vector. So clipping, noise, averaging, checkpoints and messages are operations on vectors, and none
of them needs to know what a layer is:

    vector = [ parameters, in the module's order | running_mean, running_var, ... ]
             0                          trainable                            size

The first `trainable` numbers are what training changes: a gradient, a clipped sum and an update
have this length, in this order. What follows are running statistics, which the server sets or
averages. Frozen parameters and other buffers are no part of the vector. They are constants of the
model, and part of its fingerprint.

The parameters *are* the vector: loading a vector changes the module, and an optimiser's step
changes the vector. No copy is made.

>>> model = FlatModel(nn.Sequential(nn.Flatten(), nn.Linear(784, 10)))
>>> model.layout.names, model.layout.trainable
(('1.weight', '1.bias'), 7850)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

from dpfl.codec import canonical, encode
from dpfl.deprecation import keep_old_names
from dpfl.errors import DpflError
from dpfl.lazy_import import nn, torch

if TYPE_CHECKING:
    from torch import Tensor

    from dpfl.tasks import Task

_RUNNING_STATISTICS = ("running_mean", "running_var")
CENTRE = "centre.running_mean"
"""The entry that a model subtracts from its samples, where it has one."""
PAID_SCALES = ("paid.running_mean", "paid.running_var")
"""The entries by which a model on a table scales its numbers, where it does."""


@keep_old_names(paid="paid_scales")
@dataclass(frozen=True)
class Layout:
    """The layout of the vector: where each entry lies.

    Attributes:
        names: The names of the entries: trainable parameters first, then running statistics.
        shapes: Their shapes.
        offsets: Where each of them begins.
        trainable: The number of trainable numbers, with which the vector begins.
        size: The length of the vector.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...]
    trainable: int
    size: int

    @property
    def centre(self) -> slice | None:
        """The span of the mean that the model subtracts from its samples, if it has one."""
        return self.span(self.names.index(CENTRE)) if CENTRE in self.names else None

    @property
    def paid_scales(self) -> slice | None:
        """The span of the means, then the variances, by which a table's numbers are scaled, if
        any.
        """
        spans = [self.span(self.names.index(name)) for name in PAID_SCALES if name in self.names]
        return slice(spans[0].start, spans[1].stop) if len(spans) == 2 else None

    def span(self, entry: int) -> slice:
        """Finds where an entry lies.

        Args:
            entry: The number of the entry.

        Returns:
            Its part of the vector.
        """
        end = self.offsets[entry + 1] if entry + 1 < len(self.offsets) else self.size
        return slice(self.offsets[entry], end)


class FlatModel:
    """A module whose trainable parameters and running statistics are views into one vector.

    Args:
        module: The module. Its parameters are re-pointed in place.
        task: What its scores are for. Without one, they are for as many classes as there are
            scores, by cross-entropy.

    Raises:
        DpflError: Nothing is trainable, a parameter is not float32 or has no shape yet, or the
            module lies on several devices.

    Attributes:
        layout: Where each entry lies.
        parameters: The trainable parameters, in layout order.
        vector: The vector itself, and no copy of it.
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
        """Copies a vector into the model.

        Args:
            vector: A float32 vector of the model's size.

        Raises:
            DpflError: It has another size or type.
        """
        if vector.shape != self.vector.shape or vector.dtype != torch.float32:
            raise DpflError(
                f"This model takes a float32 vector of {self.layout.size} numbers, but got "
                f"{vector.dtype} of shape "
                f"{tuple(vector.shape)}; use weights of the same model."
            )
        self.vector.copy_(vector)

    def read(self) -> Tensor:
        """Copies the vector.

        Returns:
            The copy.
        """
        return self.vector.clone()

    @property
    def fingerprint(self) -> str:
        """A digest of what training does not change.

        That is the module's structure, its layout, its constants, and the task, which is its loss.
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
        """Puts a batch into the memory order on which the module runs fastest.

        Args:
            x: The samples.

        Returns:
            The same numbers in the same shape.
        """
        if x.dim() != 4 or not x.is_floating_point() or not len(x):
            return x
        if self._takes_channels_last is None:
            self._takes_channels_last = self._try_channels_last(x.new_zeros(2, *x.shape[1:]))
        return _channels_last(x) if self._takes_channels_last else x

    def _try_channels_last(self, x: Tensor) -> bool:
        """Tries the module on channels-last samples. It may call `.view(...)` on activations, which
        torch refuses for them.
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
    """Describes a module by its kind, its settings as torch shows them, and its children by name.

    The kind is the class attribute `written_as`, or else the name of the class. So a class can be
    renamed.
    """
    kind = getattr(type(module), "written_as", type(module).__name__)
    return [
        kind,
        module.extra_repr(),
        [[name, _structure(child)] for name, child in module.named_children()],
    ]


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Sets evaluation mode, switches gradients off, and puts torch's random state back at the end,
    so that forward passes leave no trace.

    Args:
        module: The module.

    Yields:
        Nothing.
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
