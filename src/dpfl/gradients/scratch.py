"""Memory that one step leaves to the next. Mapping fresh pages costs more than the arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from math import prod

import torch
from torch import Tensor

# Numbers that are held between steps; what a step needs beyond them is allocated and freed.
_LARGEST = 1 << 26
# A part of the buffer begins at a multiple of so many numbers, so that it can hold float64 too.
_ALIGNMENT = 16


class Scratch:
    """One growing buffer. It gives out parts, and takes them back when the next step begins."""

    def __init__(self) -> None:
        self._buffer = torch.empty(0)
        self._end = 0
        self._peak = 0

    @contextmanager
    def step(self) -> Iterator[None]:
        """Makes this the scratch that `empty` takes memory from.

        Yields:
            Nothing. Memory given out inside is valid until the next step with this scratch begins.
        """
        size = min(self._peak, _LARGEST)
        if size > len(self._buffer):
            self._buffer = torch.empty(size)
        self._end = self._peak = 0
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def take(self, like: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Takes an uninitialised tensor from the buffer, or makes a new one where the buffer is
        full or of another kind.

        Args:
            like: A tensor with the type and device that are needed.
            shape: The shape.

        Returns:
            The tensor.
        """
        start, size = self._end, prod(shape)
        self._end = start + -(-size // _ALIGNMENT) * _ALIGNMENT
        self._peak = max(self._peak, self._end)
        if (
            like.dtype != self._buffer.dtype
            or like.device != self._buffer.device
            or self._end > len(self._buffer)
        ):
            return like.new_empty(shape)
        return self._buffer[start : start + size].view(shape)

    @contextmanager
    def inner(self) -> Iterator[None]:
        """Takes back, at its end, what was given out inside.

        Yields:
            Nothing.
        """
        end = self._end
        yield
        self._end = end


_current: ContextVar[Scratch | None] = ContextVar("scratch", default=None)


def empty(like: Tensor, *shape: int) -> Tensor:
    """Returns an uninitialised tensor, from the current step's scratch if there is one.

    Args:
        like: A tensor with the type and device that are needed.
        shape: The sizes.

    Returns:
        The tensor.
    """
    scratch = _current.get()
    return like.new_empty(shape) if scratch is None else scratch.take(like, shape)


def temporary() -> AbstractContextManager[None]:
    """Makes a context in which `empty` gives out memory that is valid until the context ends.

    Returns:
        The context.
    """
    scratch = _current.get()
    return nullcontext() if scratch is None else scratch.inner()
