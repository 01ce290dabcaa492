"""The self-test: in which chunks every unit's results have the same bits, with this model's layers.

A matrix product may sum in another order for another number of rows, or at another position of a
row. Then one unit changes the last bits of what all others contribute, and a server that chooses
the weights can turn a last bit into another prediction. So gradients, metrics and features are
computed in chunks of a size at which equal samples give equal bits:

- in other orders of the samples, which puts each at other positions,
- beside zeros, alone and in threes,
- with usual weights and with wild ones (1e-9 to 1e9, and zeros of either sign).

Kernels do not branch on the numbers that they add, so equal bits for random numbers mean an equal
order of summation. That is an argument and a test, and no proof about every processor. The weights
are the test's own, because whoever sends the model must not choose what is tested. Where no size
passes, each unit is computed alone, which needs no assumption.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from dpfl.gradients.mixing import narrow_and_wide_rows, random_weights, restoring
from dpfl.gradients.unit_rows import UnitRows
from dpfl.models import FlatModel
from dpfl.models.row_sizes import GRAINS, checksum

ORDERS = (3, 8)
"""Orders of the samples that the self-test tries, at least and at most; small models, whose passes
are quick, have more.
"""

_WORK = 1 << 26
# Rows times parameters of all orders of one test.

_DROPS_NOTHING = 2.0**-60
# A rate of dropout above 0 at which no number is ever dropped: the same kernels run, and no mask
# tells two places apart.

_COVERED_ATTRIBUTES = ("_parameters", "_buffers", "_modules", "training", "forward")
# Attributes of a module that the fingerprint, the order of modules and the modes cover.

Outputs = Sequence[Tensor]
"""Results that must be equal bit for bit: tensors whose first dimension is the unit."""

Compute = Callable[[Tensor, Tensor, UnitRows | None], Outputs]


_references: dict[tuple[Any, ...], bytes | None] = {}


@dataclass(frozen=True)
class SelfTest:
    """Computes a sample's results at every position of a chunk and beside others, with weights of
    its own.

    Attributes:
        model: The model. Its weights, its buffers and torch's random state are put back.
        compute: Maps samples, labels and the rows of units to what must be equal bit for bit.
        name: What is computed: a key, with everything that changes it apart from the model.
        x: A batch, of which only the shape and type matter.
        y: Its labels, likewise.
    """

    model: FlatModel
    compute: Compute
    name: str
    x: Tensor
    y: Tensor

    def reference(self, rows: int, per_unit: int) -> bytes | None:
        """Computes a digest of the results in chunks of one size. Chunks with equal digests give
        equal bits.

        Args:
            rows: The number of rows of the chunk.
            per_unit: The number of rows of each unit.

        Returns:
            The digest, or None where results depend on the position in the chunk or on its other
            units.
        """
        key = (
            self.name,
            self._model,
            self._settings,
            *self._shapes,
            torch.get_num_threads(),
            rows,
            per_unit,
        )
        if key not in _references:
            _references[key] = self._test(rows, per_unit)
        return _references[key]

    @property
    def _model(self) -> str:
        """Digested once for each model object: nothing of it changes but weights."""
        if not hasattr(self.model, "_fingerprint_cache"):
            self.model._fingerprint_cache = self.model.fingerprint  # type: ignore[attr-defined]
        return self.model._fingerprint_cache  # type: ignore[attr-defined, no-any-return]

    @cached_property
    def _modules(self) -> list[torch.nn.Module]:
        return list(self.model.module.modules())

    @cached_property
    def _settings(self) -> tuple[Any, ...]:
        """What modules of one class may differ by without showing it, such as the heads of an
        attention.
        """
        modules = (vars(module) for module in self._modules)
        return tuple(
            _comparable({name: own[name] for name in own if name not in _COVERED_ATTRIBUTES})
            for own in modules
        )

    @property
    def _shapes(self) -> tuple[Any, ...]:
        modes = tuple(
            (type(module), module.training, module.__dict__.get("forward"))
            for module in self._modules
        )
        return self.x.dtype, tuple(self.x.shape[1:]), self.y.dtype, tuple(self.y.shape[1:]), modes

    @torch.no_grad()
    def _test(self, rows: int, per_unit: int) -> bytes | None:
        batch = _Batch.random(self.model, self.x, self.y, rows, per_unit)
        orders = max(ORDERS[0], min(ORDERS[1], _WORK // (rows * self.model.layout.trainable)))
        digest = hashlib.blake2b(digest_size=16)
        with restoring(self.model), _dropping_nothing(self.model.module):
            for weights, count in (
                (random_weights(self.model), orders),
                (_wild_weights(self.model), ORDERS[0]),
            ):
                self.model.load(weights)
                expected_checksums = self._checksums(batch)
                digest.update(
                    expected_checksums[:, : max(1, GRAINS[0] // per_unit)].numpy().tobytes()
                )
                for order in batch.orders(count):
                    if not torch.equal(
                        self._checksums(batch.in_order(order)), expected_checksums[:, order]
                    ):
                        return None
                for own in batch.companions():
                    if not torch.equal(
                        self._checksums(batch.beside_zeros(own))[:, own], expected_checksums[:, own]
                    ):
                        return None
        return digest.digest()

    def _checksums(self, batch: _Batch) -> Tensor:
        """Computes checksums (outputs, units) of the bits of every unit's results."""
        outputs = self.compute(batch.x, batch.y, batch.rows)
        return torch.stack([checksum(values, batch.units) for values in outputs])


@contextmanager
def _dropping_nothing(module: nn.Module) -> Iterator[None]:
    """Sets all dropout rates to one that drops nothing.

    The mode stays as it is, because other kernels may run in evaluation mode. A module that draws
    numbers in any other way gets different ones at each position, so it fails the test.
    """
    rates = [
        (layer, name, rate)
        for layer in module.modules()
        for name, rate in vars(layer).items()
        if _drops(layer, name, rate)
    ]
    try:
        for layer, name, _ in rates:
            setattr(layer, name, _DROPS_NOTHING)
        yield
    finally:
        for layer, name, rate in rates:
            setattr(layer, name, rate)


def _drops(layer: nn.Module, name: str, rate: object) -> bool:
    is_rate = "drop" in name.lower() or (name == "p" and isinstance(layer, _DropoutNd))
    return is_rate and isinstance(rate, float) and 0 < rate < 1


class _Same:
    """Equal to itself alone. It keeps its value alive, so that nothing else gets its address."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _comparable(value: object) -> Any:
    """Makes a key that is equal where the value is: plain values by content, all else by
    identity.
    """
    if value is None or isinstance(
        value, bool | int | float | complex | str | bytes | torch.dtype | torch.device | type
    ):
        return type(value), value
    if isinstance(value, tuple | list | set | frozenset):
        return type(value), tuple(map(_comparable, value))
    if isinstance(value, Mapping):
        return type(value), tuple((name, _comparable(part)) for name, part in value.items())
    if isinstance(
        value, nn.Parameter | nn.Module | ref
    ):  # recurrent layers list their weights a second time
        return (type(value),)
    return _Same(value)


@dataclass(frozen=True)
class _Batch:
    """Random units of so many rows each."""

    x: Tensor
    y: Tensor
    units: int
    rows: UnitRows | None

    @classmethod
    def random(cls, model: FlatModel, x: Tensor, y: Tensor, rows: int, per_unit: int) -> _Batch:
        """Makes samples from 0 to 1 and wide ones, as `narrow_and_wide_rows` has them, with labels
        0 and 1.
        """
        samples = narrow_and_wide_rows(model, x, max(rows, GRAINS[-1]))[:rows]
        labels = (
            (torch.arange(rows) % 2)
            .to(y.dtype)
            .view(-1, *[1] * (y.dim() - 1))
            .expand(rows, *y.shape[1:])
            .contiguous()
        )
        shares = torch.full((rows,), 1 / per_unit)
        return cls(
            samples, labels, rows // per_unit, UnitRows(per_unit, shares) if per_unit > 1 else None
        )

    def orders(self, count: int) -> Iterator[Tensor]:
        """Yields orders of the units: each one place further, then all in reverse, then random
        ones.
        """
        generator = torch.Generator().manual_seed(3)
        yield torch.arange(self.units).roll(1)
        yield torch.arange(self.units).flip(0)
        for _ in range(count - 2):
            yield torch.randperm(self.units, generator=generator)

    def in_order(self, order: Tensor) -> _Batch:
        return replace(
            self,
            x=self._by_unit(self.x)[order].flatten(0, 1),
            y=self._by_unit(self.y)[order].flatten(0, 1),
        )

    def companions(self) -> Iterator[Tensor]:
        """Yields the units that stay beside zeros: every other unit, one alone, and three, with
        wide ones among them.

        A module that computes some rows apart from the others then has other numbers of them.
        """
        yield torch.arange(0, self.units, 2)
        yield torch.arange(self.units)[2 % self.units :][:1]
        yield torch.arange(self.units)[3 % self.units :: 4][:3]

    def beside_zeros(self, own: Tensor) -> _Batch:
        """Replaces all other units by zeros, as the fillers of a chunk are."""
        x, y = self._by_unit(self.x), self._by_unit(self.y)
        alone = replace(self, x=torch.zeros_like(self.x), y=torch.zeros_like(self.y))
        alone._by_unit(alone.x)[own], alone._by_unit(alone.y)[own] = x[own], y[own]
        return alone

    def _by_unit(self, values: Tensor) -> Tensor:
        return values.unflatten(0, (self.units, -1))


def _wild_weights(model: FlatModel) -> Tensor:
    """Draws random weights, each times a power of ten between 1e-9 and 1e9, and some zeros of
    either sign.
    """
    generator = torch.Generator().manual_seed(4)
    weights = random_weights(model)
    powers = torch.rand(weights.shape, generator=generator) * 18 - 9
    zeros = torch.rand(weights.shape, generator=generator) < 0.05
    return (weights * 10.0**powers).where(~zeros, weights * 0.0)
