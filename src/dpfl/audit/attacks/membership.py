"""Membership inference on a final model: by the loss, or by a likelihood ratio with shadow models.

The samples share one model, so these rates are not independent trials. They show what an attack
achieves, and bound nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from dpfl.audit.bounds import rate_at_most
from dpfl.models.flat import evaluating
from dpfl.tasks import Task

RATES = (0.001, 0.01, 0.1)
CERTAIN = 0.9999


@dataclass(frozen=True)
class RocCurve:
    """True positive rates at low false positive rates.

    Attributes:
        attack: Name of the attack.
        members: Number of members.
        others: Number of other samples.
        rates: True positive rate for each false positive rate.
        ceilings: Largest true positive rate that (epsilon, delta) allows for each.
        beyond: False positive rates with more true positives than the ceiling and chance allow.
    """

    attack: str
    members: int
    others: int
    rates: dict[float, float]
    ceilings: dict[float, float]
    beyond: tuple[float, ...] = ()

    @property
    def text(self) -> str:
        """The rates in words, and what it means if one is above its ceiling."""
        pairs = (
            f"{self.rates[rate]:.2%} at {rate:.1%} (ceiling {self.ceilings[rate]:.2%})"
            for rate in self.rates
        )
        return f"{self.attack}: true positives {', '.join(pairs)}{self._above}"

    @property
    def _above(self) -> str:
        """Says what it means that a rate is above its ceiling."""
        if self.beyond:
            return (
                f"; at {_percentages(self.beyond)} above the ceiling by more than chance: either "
                "members and others differ in more "
                "than membership (other sources, copies), or the epsilon does not hold; the games "
                "that bound it tell which"
            )
        above = [rate for rate in self.rates if self.rates[rate] > self.ceilings[rate]]
        if not above:
            return ""
        few = f"{self.members} members and {self.others} others"
        return (
            f"; at {_percentages(above)} above the ceiling, as chance allows with {few}: this "
            "refutes nothing"
        )


def ceiling(rate: float, epsilon: float, delta: float) -> float:
    """Computes the largest true positive rate that (epsilon, delta) allows.

    Args:
        rate: False positive rate FPR.
        epsilon: Epsilon of the guarantee.
        delta: Delta of the guarantee.

    Returns:
        The smaller of e^epsilon FPR + delta and 1 - e^-epsilon (1 - delta - FPR).
    """
    if math.isinf(epsilon):
        return 1.0
    bound = math.exp(min(epsilon + math.log(rate), 0.0)) + delta if rate else delta
    return min(1.0, bound, 1 - math.exp(-epsilon) * (1 - delta - rate))


def roc(
    attack: str, members: np.ndarray, others: np.ndarray, epsilon: float, delta: float
) -> RocCurve:
    """Computes the curve of an attack.

    Args:
        attack: Name of the attack.
        members: Scores of members, high for a sample that looks like one.
        others: Scores of other samples.
        epsilon: Epsilon of the guarantee.
        delta: Delta of the guarantee.

    Returns:
        The curve.
    """
    rates = {rate: float((members > _threshold(others, rate)).mean()) for rate in RATES}
    beyond = tuple(
        rate
        for rate in RATES
        if _least(rates[rate], members) > ceiling(_most(rate, others), epsilon, delta)
    )
    return RocCurve(
        attack,
        len(members),
        len(others),
        rates,
        {rate: ceiling(rate, epsilon, delta) for rate in RATES},
        beyond,
    )


def _least(rate: float, members: np.ndarray) -> float:
    """Returns a lower confidence bound on the true positive rate."""
    return 1 - rate_at_most(round((1 - rate) * len(members)), len(members), CERTAIN)


def _most(rate: float, others: np.ndarray) -> float:
    """Returns an upper confidence bound on the false positive rate."""
    return (
        rate_at_most(int(rate * len(others)) + 1, len(others), CERTAIN) if len(others) > 1 else 1.0
    )


def _percentages(rates: Sequence[float]) -> str:
    return ", ".join(f"{rate:.1%}" for rate in rates)


def _threshold(others: np.ndarray, rate: float) -> float:
    """Returns the score that at most a share `rate` of non-members exceed."""
    return float(np.sort(others)[len(others) - 1 - int(rate * len(others))])


@torch.no_grad()
def confidences(module: nn.Module, x: Tensor, y: Tensor) -> np.ndarray:
    """Computes log(p / (1 - p)) of the right label, which is nearly normal over models.

    This is the score of Carlini et al. 2022.

    Args:
        module: The model.
        x: Samples.
        y: Labels.

    Returns:
        The scores.
    """
    with evaluating(module):
        logs = functional.log_softmax(
            torch.cat([module(part) for part in x.split(500)]).double(), dim=1
        )
    right = logs.gather(1, y[:, None]).squeeze(1)
    wrong = logs.scatter(1, y[:, None], -math.inf).logsumexp(1)
    return (right - wrong).numpy()


@torch.no_grad()
def losses(module: nn.Module, task: Task, x: Tensor, y: Tensor) -> np.ndarray:
    """Computes the loss of each sample.

    Args:
        module: The model.
        task: What is predicted.
        x: Samples.
        y: Labels.

    Returns:
        The losses.
    """
    with evaluating(module):
        parts = zip(x.split(500), y.split(500), strict=True)
        return (
            torch.cat([task.losses(module(some), labels) for some, labels in parts])
            .double()
            .numpy()
        )


def loss_threshold(
    module: nn.Module,
    members: tuple[Tensor, Tensor],
    others: tuple[Tensor, Tensor],
    epsilon: float,
    delta: float,
) -> RocCurve:
    """Attacks by the loss: a low loss speaks for membership.

    Args:
        module: The model.
        members: Samples and labels of members.
        others: Samples and labels of others.
        epsilon: Epsilon of the guarantee.
        delta: Delta of the guarantee.

    Returns:
        The curve.
    """
    return roc(
        "loss threshold",
        confidences(module, *members),
        confidences(module, *others),
        epsilon,
        delta,
    )


def likelihood_ratio(
    module: nn.Module,
    shadows: Sequence[nn.Module],
    members: tuple[Tensor, Tensor],
    others: tuple[Tensor, Tensor],
    epsilon: float,
    delta: float,
) -> RocCurve:
    """Attacks by the confidence relative to shadow models, which saw no such sample (offline LiRA).

    Args:
        module: The model.
        shadows: Shadow models.
        members: Samples and labels of members.
        others: Samples and labels of others.
        epsilon: Epsilon of the guarantee.
        delta: Delta of the guarantee.

    Returns:
        The curve.
    """
    scores = []
    for x, y in (members, others):
        without = np.stack([confidences(shadow, x, y) for shadow in shadows])
        scores.append((confidences(module, x, y) - without.mean(0)) / (without.std() + 1e-9))
    return roc(
        f"likelihood ratio, {len(shadows)} shadow models", scores[0], scores[1], epsilon, delta
    )
