"""Memory that one step leaves to the next: fresh pages cost more than what is computed in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from math import prod

import torch
from torch import Tensor

# Numbers that are held between steps; what a step needs beyond them is allocated and freed.
_LARGEST = 1 << 26
# Numbers: what is given out begins at a multiple, so that it can hold float64 too.
_ALIGNED = 16


class Scratch:
    """Gives out parts of one growing buffer, until the next step takes them back."""

    def __init__(self) -> None:
        self._buffer = torch.empty(0)
        self._used = 0
        self._peak = 0

    @contextmanager
    def step(self) -> Iterator[None]:
        """What `empty` gives out inside is valid until the next step with this scratch begins."""
        wanted = min(self._peak, _LARGEST)
        if wanted > len(self._buffer):
            self._buffer = torch.empty(wanted)
        self._used = self._peak = 0
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def take(self, like: Tensor, shape: tuple[int, ...]) -> Tensor:
        start, size = self._used, prod(shape)
        self._used = start + -(-size // _ALIGNED) * _ALIGNED
        self._peak = max(self._peak, self._used)
        if (
            like.dtype != self._buffer.dtype
            or like.device != self._buffer.device
            or self._used > len(self._buffer)
        ):
            return like.new_empty(shape)
        return self._buffer[start : start + size].view(shape)

    @contextmanager
    def inner(self) -> Iterator[None]:
        used = self._used
        yield
        self._used = used


_current: ContextVar[Scratch | None] = ContextVar("scratch", default=None)


def empty(like: Tensor, *shape: int) -> Tensor:
    """An uninitialised tensor, of the current step's scratch if there is one."""
    scratch = _current.get()
    return like.new_empty(shape) if scratch is None else scratch.take(like, shape)


def temporary() -> AbstractContextManager[None]:
    """What `empty` gives out inside is valid inside only."""
    scratch = _current.get()
    return nullcontext() if scratch is None else scratch.inner()
