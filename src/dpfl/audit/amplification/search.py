"""Searches for inputs to a model that amplifies the last bit: how far can one unit move a sum of
clipped gradients through the results of the others?

Clipping bounds each unit's own vector. It bounds the sum only if that vector is a function of the
unit alone, bit for bit. Matrix products in float32 may add in another order when the batch has
another size or when a row is at another place. Whoever chooses the model can make that visible:
weights of 1e9 and a bias that cancels leave a value whose sign is its rounding error. The sign
opens or closes a gate (a ReLU, a softmax), and the clipped gradient of that unit goes from 0 to the
clip norm.

The same holds for a slope of the backward pass, whose sign is the direction of the clipped
gradient.

The game searches records for which this happens when one unit is added. It reads the code under
test through its losses and its sums only, so it plays on any implementation.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from dpfl.audit.amplification.amplifiers import LABEL, SCALE, Amplifier

TRIES, NEAR = 60, 1e-2
"""How often the search for rows is repeated, and how far rows lie from their base, relative to its
length.
"""

SIZES, USUAL, MOST_PLACES = (*range(1, 10), 15, 16, 17, 18, 31, 32), 15, 3
"""Numbers of other units that are tried, the one that is played in any case, and how many of them
are played.
"""

SLOPE_SIZES = (1, 2, 3, 7, 15)
"""Numbers of other units that are played where nothing shows in losses."""

MARKER = 16.0
"""The value of a marker where it is not 0. It is so large that it is most of a row."""

SLIGHTLY = 2.0**-8
"""How far a gate is open, relative to the weights, so that rounding errors show."""

OPEN_LOSS, CLOSED_LOSS = 0.1, 1e-3
"""A unit's loss is above the first where its gate is open, and below the second where it is
closed.
"""


class AmplificationTrial(NamedTuple):
    """The results of the code under test.

    Attributes:
        total: The sum of clipped gradients, in clip norms, flat, in the order of the module's
            parameters.
        losses: The loss of each unit.
    """

    total: Tensor
    losses: Tensor


Sums = Callable[[Tensor, Tensor, "Tensor | None"], AmplificationTrial]
"""The code under test: a function from rows, labels and unit numbers (0, 1, 2, ..., one per row,
ascending; None if each row is a unit) to the trial.
"""


@dataclass(frozen=True)
class AmplificationResult:
    """The furthest that one unit moved the sum.

    Attributes:
        movement: The length of the difference of the two sums, in clip norms. A correct mechanism
            has at most 1.
        others: How many other units there are.
        place: Where among them the unit was inserted.
        units: Their records (others, rows, ...).
        new_unit: The records of the unit (1, rows, ...).
    """

    movement: float
    others: int
    place: int
    units: Tensor = field(repr=False)
    new_unit: Tensor = field(repr=False)

    @property
    def together(self) -> Tensor:
        """The records of all units (others + 1, rows, ...), in the order that was played."""
        return torch.cat([self.units[: self.place], self.new_unit, self.units[self.place :]])


def amplified_movement(
    clipped_sum: Sums,
    amplifier: Amplifier,
    others: int,
    *,
    place: int = 0,
    rows: int = 1,
    tries: int = TRIES,
    seed: int = 0,
) -> AmplificationResult:
    """Searches the records of other units so that adding one unit moves the sum of clipped
    gradients the furthest.

    Args:
        clipped_sum: The code under test, on the amplifier's module.
        amplifier: The model that was chosen to amplify, for example `linear(3969, 10)`.
        others: How many units there are beside the one that is added.
        place: How many of them come before the one that is added.
        rows: How many rows each unit has; with 1, no unit numbers are given.
        tries: How many times both sums are computed at most.
        seed: Of the search.

    Returns:
        The furthest that the search found.
    """
    search = _searching(amplifier, rows, seed)
    units, new_unit = search.closing(others), search.opening()
    best = AmplificationResult(0.0, others, place, units, new_unit)
    for _ in range(tries):
        marked_units, marked_unit = search.mark(units), search.mark(new_unit)
        without, within, others_at = _neighbours(
            clipped_sum, marked_units, marked_unit, place, rows
        )
        if amplifier.markers:
            is_open = search.rising(clipped_sum, units, new_unit, place)
        else:
            is_open = (without.losses < CLOSED_LOSS / rows) & (
                within.losses[others_at] > OPEN_LOSS / rows
            )
        movement = float((within.total.double() - without.total.double()).norm())
        if movement > best.movement:
            best = AmplificationResult(movement, others, place, marked_units, marked_unit)
        if is_open.all():
            break
        units = units.clone()
        units[~is_open] = search.closing(int((~is_open).sum()))
    return best


def furthest_movement(
    clipped_sum: Sums,
    amplifier: Amplifier,
    *,
    sizes: Iterable[int] = SIZES,
    rows: int = 1,
    tries: int = TRIES,
    seed: int = 0,
) -> AmplificationResult:
    """Searches where results depend on the batch, and then plays there, with the other units and
    the new unit first or last among them.

    Args:
        clipped_sum: The code under test, on the amplifier's module.
        amplifier: The model that was chosen to amplify.
        sizes: Numbers of other units to look at.
        rows: How many rows each unit has.
        tries: How many times both sums of one search are computed at most.
        seed: Of the search.

    Returns:
        The furthest that was found. Where no result depends on the batch, a usual size is played
        all the same.
    """
    if amplifier.markers:  # the losses of its units show nothing
        placements = [
            (others, place)
            for others in SLOPE_SIZES
            for place in (0, others)
            if others <= amplifier.markers
        ]
    else:
        dependent = dependent_units(clipped_sum, amplifier, sizes=sizes, rows=rows, seed=seed)
        placements = sorted(dependent, key=lambda key: dependent[key], reverse=True)[
            :MOST_PLACES
        ] or [(USUAL, 0)]
    results = (
        amplified_movement(
            clipped_sum, amplifier, others, place=place, rows=rows, tries=tries, seed=seed
        )
        for others, place in placements
    )
    return max(results, key=lambda result: result.movement)


def dependent_units(
    clipped_sum: Sums,
    amplifier: Amplifier,
    *,
    sizes: Iterable[int] = SIZES,
    rows: int = 1,
    seed: int = 0,
) -> dict[tuple[int, int], int]:
    """Finds where other units' losses change in any bit when one unit is added.

    Args:
        clipped_sum: The code under test, on the amplifier's module.
        amplifier: The model that was chosen to amplify.
        sizes: Numbers of other units to look at.
        rows: How many rows each unit has.
        seed: Of the records.

    Returns:
        From (other units, units before the one that is added) to how many of them changed; empty in
        exact arithmetic.
    """
    search = _searching(amplifier, rows, seed)
    counts = {}
    for others in sorted(set(sizes)):
        units, new_unit = search.near(others), search.opening()
        for place in (0, others):
            without, within, others_at = _neighbours(clipped_sum, units, new_unit, place, rows)
            if changes := int((within.losses[others_at] != without.losses).sum()):
                counts[others, place] = changes
    return counts


def _searching(amplifier: Amplifier, rows: int, seed: int) -> _Search:
    return _Search(
        amplifier, copy.deepcopy(amplifier.gate).double(), rows, torch.Generator().manual_seed(seed)
    )


def _neighbours(
    clipped_sum: Sums, units: Tensor, new_unit: Tensor, place: int, rows: int
) -> tuple[AmplificationTrial, AmplificationTrial, Tensor]:
    """Runs the code without the one unit and with it at this place, and says which of all units are
    the others.
    """
    without = _play(clipped_sum, units, rows)
    within = _play(clipped_sum, torch.cat([units[:place], new_unit, units[place:]]), rows)
    return without, within, torch.arange(len(units) + 1) != place


def _play(clipped_sum: Sums, units: Tensor, rows: int) -> AmplificationTrial:
    x = units.flatten(0, 1)
    whose = torch.arange(len(units)).repeat_interleave(rows) if rows > 1 else None
    return clipped_sum(x, torch.full((len(x),), LABEL), whose)


@dataclass(frozen=True)
class _Search:
    amplifier: Amplifier
    exact: nn.Module
    rows: int
    rng: torch.Generator

    def closing(self, count: int) -> Tensor:
        """Makes units (count, rows, ...) whose first row is at the gate, and whose other rows are
        where the gate is surely closed.
        """
        values = torch.zeros(count, self.rows, dtype=torch.float64)
        if not self.amplifier.markers:
            values[:, 1:] = -SCALE
        return self._settle(values)

    def mark(self, units: Tensor, each: bool = False) -> Tensor:
        """Sets the markers of units: the first marker in all of them, or another marker in each."""
        if not self.amplifier.markers:
            return units
        units, markers = units.clone(), units.new_zeros(len(units), self.amplifier.markers)
        markers[torch.arange(len(units)), torch.arange(len(units)) if each else 0] = MARKER
        units[..., -self.amplifier.markers :] = markers[:, None]
        return units

    def rising(self, clipped_sum: Sums, units: Tensor, new_unit: Tensor, place: int) -> Tensor:
        """Finds the units whose slope falls without the one unit and rises with it. Each unit has a
        marker of its own, which changes no slope.
        """
        units = self.mark(units, each=True)
        without, within, _ = _neighbours(clipped_sum, units, new_unit, place, self.rows)
        own = slice(self.amplifier.base.numel() - self.amplifier.markers, None)
        falls, rises = (
            trial.total[: self.amplifier.base.numel()][own][: len(units)]
            for trial in (without, within)
        )
        return (falls < 0) & (rises > 0)

    def near(self, count: int) -> Tensor:
        """Makes units whose gate is open by so little that a rounding error shows in their loss."""
        return self._settle(torch.full((count, self.rows), SLIGHTLY * SCALE, dtype=torch.float64))

    def opening(self) -> Tensor:
        """Makes a unit whose rows all have an open gate. Its gradient has the direction of the
        gradients of those units that open with it.
        """
        return self._settle(torch.full((1, self.rows), SCALE, dtype=torch.float64))

    def _settle(self, values: Tensor) -> Tensor:
        """Finds rows near the base that have these values before the gate, as nearly as float32
        rows can have them.
        """
        base = self.amplifier.base
        shape = (values.numel(), base.numel())
        jitter = torch.randn(shape, generator=self.rng) * NEAR * base.norm() / base.numel() ** 0.5
        jitter[:, shape[1] - self.amplifier.markers :] = 0
        x = base.flatten() + jitter
        for step in range(4):
            gate_values, slopes = self._at_gate(x)
            # one number of the row at a time: a step along all of them is lost in their rounding
            if step:
                odds = slopes.abs() * (slopes.abs() >= slopes.abs().amax(1, keepdim=True) / 4)
                slopes *= nn.functional.one_hot(
                    torch.multinomial(odds, 1, generator=self.rng)[:, 0], shape[1]
                )
            x = (
                x
                + (values.flatten() - gate_values)[:, None]
                * slopes
                / slopes.square().sum(1, keepdim=True)
            ).float()
        return x.view(*values.shape, *base.shape)

    def _at_gate(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Computes the value of each row before the gate in float64, and its slopes."""
        with torch.enable_grad():
            exact = x.double().requires_grad_()
            gate_values = self.exact(exact.view(-1, *self.amplifier.base.shape)).flatten(1)[
                :, self.amplifier.unit
            ]
            (slopes,) = torch.autograd.grad(gate_values.sum(), exact)
        return gate_values.detach(), slopes
