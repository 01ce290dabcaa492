"""A data set: samples and labels that were checked against the task, with their digest."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from dpfl.deprecation import deprecated_names
from dpfl.errors import DpflError
from dpfl.lazy_import import torch
from dpfl.tasks import MultiClass, Task
from dpfl.tasks.label_checks import between, whole

if TYPE_CHECKING:
    from dpfl.data.tables.schema import FeatureLayout, Schema


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples and their labels. Whoever has this object sees all of them.

    Attributes:
        name: The name of the data.
        x: The samples (n, ...): float32, or int64 where samples are tokens.
        y: The labels, in the form that the task takes.
        task: What is predicted. A number stands for that many classes.
        schema: The declared columns, where a sample is a row of a table.
    """

    name: str
    x: torch.Tensor
    y: torch.Tensor
    task: Task
    schema: Schema | None = None

    def __post_init__(self) -> None:
        if isinstance(self.task, int):
            object.__setattr__(self, "task", MultiClass(self.task))
        form = self.task.examples(1)
        x_type = torch.int64 if self.task.reads == "tokens" else torch.float32
        if self.x.dtype != x_type or self.y.dtype != form.dtype:
            raise DpflError(
                f"The data set {self.name!r} has x of {self.x.dtype} and y of {self.y.dtype}: "
                f"give {_word(x_type)} and {_word(form.dtype)}, or let dpfl.data.tensors convert "
                "them."
            )
        if self.x.ndim < 2 or self.y.ndim != form.ndim or len(self.x) != len(self.y):
            labels = (
                "one label per sample as (n,)"
                if form.ndim == 1
                else f"y as (n, ...), for the task {self.task.name!r}"
            )
            raise DpflError(
                f"The data set {self.name!r} has x of shape {tuple(self.x.shape)} and y of shape "
                f"{tuple(self.y.shape)}: give x as (n, ...) and {labels}."
            )
        if len(self.y) == 0:
            raise DpflError(f"The data set {self.name!r} is empty: give at least one sample.")
        if not (torch.isfinite(self.x.sum()) or torch.isfinite(self.x).all()):
            raise DpflError(
                f"The data set {self.name!r} holds values that are not finite: remove or replace "
                "them."
            )
        _check_tokens(self)
        _fitting(self.name, self.task, self.y)

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        """Shows sizes, never samples."""
        shape = " x ".join(map(str, self.shape))
        labels = f"in {self.classes} classes" if self.classes else f"for the task {self.task.name}"
        return f"Dataset({self.name!r}: {len(self)} samples of {shape} {labels})"

    @property
    def classes(self) -> int:
        """The number of classes; 0 where labels are no classes."""
        return self.task.classes

    @property
    def features(self) -> FeatureLayout | None:
        """How a sample is laid out, where it is a row of a table."""
        return self.schema.features if self.schema else None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.x.shape[1:])

    @cached_property
    def sha256(self) -> str:
        """A digest of the samples, the labels and what these mean.

        How a loss weighs the labels is no part of the data.
        """
        digest = hashlib.sha256(
            f"{tuple(self.x.shape)} {self.task.name} {self.task.outputs}".encode()
        )
        for tensor in (self.x, self.y):
            digest.update(tensor.detach().cpu().contiguous().numpy().data)
        return digest.hexdigest()


Array: TypeAlias = "torch.Tensor | np.ndarray"


def make_dataset(name: str, x: Array, y: Array, task: Task) -> Dataset:
    """Makes a data set from tensors or arrays of any numeric type.

    Args:
        name: The name of the data.
        x: The samples. Bytes (uint8) are scaled from 0..255 to 0..1, unless they are tokens.
        y: Their labels.
        task: What is predicted.

    Returns:
        The data set.

    Raises:
        DpflError: Samples or labels do not fit the task.
    """
    samples = as_tensor(name, x)
    if task.reads == "tokens":
        samples = whole(samples, f"Tokens of {name!r}")
    else:
        samples = samples.float() / 255 if samples.dtype == torch.uint8 else samples.float()
    return Dataset(name, samples.contiguous(), _fitting(name, task, as_tensor(name, y)), task)


def _fitting(name: str, task: Task, y: torch.Tensor) -> torch.Tensor:
    """Converts the labels to the form that the task takes."""
    try:
        return task.labels(y)
    except DpflError as error:
        raise DpflError(f"{name!r}: {error}") from None


def _check_tokens(data: Dataset) -> None:
    if data.task.reads == "tokens":
        try:
            between(data.x, 0, data.task.outputs - 1, "Tokens")
        except DpflError as error:
            raise DpflError(f"{data.name!r}: {error}") from None


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def as_tensor(name: str, values: Array) -> torch.Tensor:
    """Converts numbers of any form to a tensor on the CPU.

    Args:
        name: The name of the data, for errors.
        values: A tensor, an array, or what torch takes for one.

    Returns:
        The tensor, without a history of gradients.

    Raises:
        DpflError: The values are not real numbers.
    """
    try:
        tensor = torch.as_tensor(values).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise DpflError(
            f"The data set {name!r} contains values that are not numbers ({error}): convert them."
        ) from error
    if tensor.is_complex():
        raise DpflError(
            f"The data set {name!r} holds complex numbers: give real ones, such as both parts side "
            "by side."
        )
    return tensor


if not TYPE_CHECKING:
    __getattr__ = deprecated_names(__name__, {"Source": "dpfl.data.data_source.DataSource"})
