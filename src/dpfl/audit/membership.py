"""Membership inference on a final model: who was in the training set, by the loss, or by a likelihood ratio with shadow models.

The samples share one model, so these rates are no independent trials: they show what an attack achieves, and bound nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from dpfl.models.flat import evaluating

RATES = (0.001, 0.01, 0.1)


@dataclass(frozen=True)
class Roc:
    """True positives at low false positive rates, and the most that (epsilon, delta) allows there."""

    attack: str
    members: int
    others: int
    rates: dict[float, float]
    ceilings: dict[float, float]

    @property
    def text(self) -> str:
        pairs = (f"{self.rates[rate]:.2%} at {rate:.1%} (ceiling {self.ceilings[rate]:.2%})" for rate in self.rates)
        return f"{self.attack}: true positives {', '.join(pairs)}"


def ceiling(rate: float, epsilon: float, delta: float) -> float:
    """The largest true positive rate at a false positive rate: e^eps FPR + delta, and 1 - e^-eps (1 - delta - FPR)."""
    if math.isinf(epsilon):
        return 1.0
    grown = math.exp(min(epsilon + math.log(rate), 0.0)) + delta if rate else delta
    return min(1.0, grown, 1 - math.exp(-epsilon) * (1 - delta - rate))


def roc(attack: str, members: np.ndarray, others: np.ndarray, epsilon: float, delta: float) -> Roc:
    """Scores are high for who looks like a member; the threshold lets so many of the others through."""
    rates = {rate: float((members > _threshold(others, rate)).mean()) for rate in RATES}
    return Roc(attack, len(members), len(others), rates, {rate: ceiling(rate, epsilon, delta) for rate in RATES})


def _threshold(others: np.ndarray, rate: float) -> float:
    """Above it are at most `rate` of the others."""
    return float(np.sort(others)[len(others) - 1 - int(rate * len(others))])


@torch.no_grad()
def confidences(module: nn.Module, x: Tensor, y: Tensor) -> np.ndarray:
    """log(p / (1 - p)) of the right label: near normal over models (Carlini et al. 2022)."""
    with evaluating(module):
        logs = functional.log_softmax(torch.cat([module(part) for part in x.split(500)]).double(), dim=1)
    right = logs.gather(1, y[:, None]).squeeze(1)
    wrong = logs.scatter(1, y[:, None], -math.inf).logsumexp(1)
    return (right - wrong).numpy()


def loss_threshold(
    module: nn.Module, members: tuple[Tensor, Tensor], others: tuple[Tensor, Tensor], epsilon: float, delta: float
) -> Roc:
    """A low loss speaks for membership; the confidence orders samples as the loss does."""
    return roc("loss threshold", confidences(module, *members), confidences(module, *others), epsilon, delta)


def likelihood_ratio(
    module: nn.Module,
    shadows: Sequence[nn.Module],
    members: tuple[Tensor, Tensor],
    others: tuple[Tensor, Tensor],
    epsilon: float,
    delta: float,
) -> Roc:
    """The confidence against that of shadow models, which saw none of these samples (offline LiRA)."""
    scores = []
    for x, y in (members, others):
        without = np.stack([confidences(shadow, x, y) for shadow in shadows])
        scores.append((confidences(module, x, y) - without.mean(0)) / (without.std() + 1e-9))
    return roc(f"likelihood ratio, {len(shadows)} shadow models", scores[0], scores[1], epsilon, delta)
