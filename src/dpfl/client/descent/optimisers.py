"""Optimisers: how a gradient becomes a step of a client's model.

    >>> step = optimiser("momentum", rate=0.1).start()
    >>> step(torch.ones(2)), step(torch.ones(2))
    (tensor([-0.1000, -0.1000]), tensor([-0.1900, -0.1900]))

An optimiser holds settings only. `start()` returns a new `Step` for each round, which maps the flat
gradient g to the change of the flat model x and keeps its own moments. Clients keep no moments from
one round to the next.

With a noisy gradient a step is post-processing, so every optimiser costs the same privacy. They
differ in what the server can read from an update:

- `SGD` is linear: an update is -eta times the sum of the noisy gradients. Adaptive step policies,
  control variates and secure sums need that, and `sample_sensitivity` has a bound for it only.
- `Momentum`, `Adam` and `AdaGrad` are not linear.
- `UncalibratedSGD` has no rate yet. `planning/planner.py` finds the noise first, and then the rate
  at which noise alone moves the model by about `walk` over the whole run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias

from dpfl.bad_values import choose
from dpfl.codec import part
from dpfl.errors import DpflError
from dpfl.lazy_import import torch

if TYPE_CHECKING:
    from torch import Tensor

Step: TypeAlias = "Callable[[Tensor], Tensor]"
"""Maps a gradient to the change of the model, and keeps its own moments."""


class Optimiser(Protocol):
    """A rule that turns gradients into steps."""

    @property
    def rate(self) -> float:
        """The learning rate."""

    @property
    def linear(self) -> bool:
        """Whether its steps add up to -rate times the sum of the gradients, and can be read as
        that.
        """

    @property
    def calibrated(self) -> bool:
        """Whether its learning rate is known, and does not follow from the budget later."""

    @property
    def walk(self) -> float | None:
        """How far noise alone may move the model over the run, where the learning rate follows from
        that; None where the rate is known.
        """

    @property
    def by_rows(self) -> bool:
        """Whether, on rows of a table, walk and clip norm follow from what is declared of a row."""

    @property
    def momentum(self) -> float:
        """The share of the last step that the next one repeats; 0 where there is none."""

    def start(self) -> Step:
        """Starts a round afresh: clients keep nothing from one round to the next.

        Returns:
            A function from a gradient to the change of the model.
        """


def _check(rate: float) -> None:
    if not 0 < rate < math.inf:
        raise DpflError(f"The learning rate must be above 0 and finite, not {rate}.")


@part("optimiser.sgd", learning_rate="rate")
@dataclass(frozen=True)
class SGD:
    """x <- x - eta g."""

    rate: float
    linear = True
    calibrated: ClassVar[bool] = True
    walk, by_rows, momentum = None, False, 0.0

    def __post_init__(self) -> None:
        _check(self.rate)

    def start(self) -> Step:
        """Starts a round; plain SGD has no moments.

        Returns:
            The function g -> -eta g.
        """
        return lambda gradient: -self.rate * gradient


NOT_PLANNED = (
    "This learning rate follows from budget, clients and model; give a rate to use it "
    "outside of a run."
)


@part("optimiser.planned-sgd")
@dataclass(frozen=True)
class UncalibratedSGD:
    """SGD whose rate follows from the noise before training. Noise alone then moves the model by
    about `walk` over the run; or, with `by_rows`, the rate follows from what is declared of a row.
    """

    walk: float
    by_rows: bool = False
    linear = False
    calibrated: ClassVar[bool] = False
    momentum = 0.0

    def __post_init__(self) -> None:
        if not self.walk > 0:
            raise DpflError(
                f"The walk that a learning rate follows from must be above 0, not {self.walk}; 15 "
                "is usual."
            )

    @property
    def rate(self) -> float:
        """Raises, because there is no rate yet.

        Raises:
            DpflError: The rate was not planned.
        """
        raise DpflError(NOT_PLANNED)

    def start(self) -> Step:
        """Refuses to start, because there is no rate yet.

        Returns:
            Nothing.

        Raises:
            DpflError: The rate was not planned.
        """
        raise DpflError(NOT_PLANNED)


@part("optimiser.momentum", learning_rate="rate")
@dataclass(frozen=True)
class Momentum:
    """v <- beta v + g, x <- x - eta v."""

    rate: float
    beta: float = 0.9
    linear = by_rows = False
    calibrated: ClassVar[bool] = True
    walk = None

    def __post_init__(self) -> None:
        _check(self.rate)

    @property
    def momentum(self) -> float:
        """beta."""
        return self.beta

    def start(self) -> Step:
        """Starts a round with v = 0.

        Returns:
            A function from a gradient to -eta v, which updates v first.
        """
        velocity: Tensor | float = 0.0

        def step(gradient: Tensor) -> Tensor:
            nonlocal velocity
            velocity = self.beta * velocity + gradient
            return -self.rate * velocity

        return step


@part("optimiser.adam", learning_rate="rate")
@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba 2015) with bias correction."""

    rate: float
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    linear = by_rows = False
    calibrated: ClassVar[bool] = True
    walk, momentum = None, 0.0

    def __post_init__(self) -> None:
        _check(self.rate)

    def start(self) -> Step:
        """Starts a round with both moments at 0.

        Returns:
            A function from a gradient to the step of Adam, which updates the moments first.
        """
        first: Tensor | float = 0.0
        second: Tensor | float = 0.0
        count = 0

        def step(gradient: Tensor) -> Tensor:
            nonlocal first, second, count
            count += 1
            first = self.beta1 * first + (1 - self.beta1) * gradient
            second = self.beta2 * second + (1 - self.beta2) * gradient.square()
            mean = first / (1 - self.beta1**count)
            scale = torch.sqrt(second / (1 - self.beta2**count)) + self.epsilon
            return -self.rate * mean / scale

        return step


@part("optimiser.adagrad", learning_rate="rate")
@dataclass(frozen=True)
class AdaGrad:
    """s <- s + g^2, x <- x - eta g / (sqrt(s) + epsilon)."""

    rate: float
    epsilon: float = 1e-8
    linear = by_rows = False
    calibrated: ClassVar[bool] = True
    walk, momentum = None, 0.0

    def __post_init__(self) -> None:
        _check(self.rate)

    def start(self) -> Step:
        """Starts a round with s = 0.

        Returns:
            A function from a gradient to the step of AdaGrad, which updates s first.
        """
        squares: Tensor | float = 0.0

        def step(gradient: Tensor) -> Tensor:
            nonlocal squares
            squares = squares + gradient.square()
            return -self.rate * gradient / (torch.sqrt(squares) + self.epsilon)

        return step


OPTIMISERS: dict[str, type[SGD] | type[Momentum] | type[Adam] | type[AdaGrad]] = {
    "sgd": SGD,
    "momentum": Momentum,
    "adam": Adam,
    "adagrad": AdaGrad,
}


def optimiser(name: str, rate: float) -> Optimiser:
    """Makes an optimiser by its name.

    Args:
        name: "sgd", "momentum", "adam" or "adagrad".
        rate: The learning rate.

    Returns:
        The optimiser with its usual other settings.

    Raises:
        DpflError: There is no such optimiser, or the rate is no positive number.
    """
    return choose("optimiser", name, OPTIMISERS)(rate)
