"""Step policies that follow a convergence bound (ALI-DPFL, ALS-DPFL), from released values or, as published, from raw ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpfl.errors import DpflError
from dpfl.lazy import torch
from dpfl.server import ali_bounds, als_bounds
from dpfl.server.ali_bounds import MOST_ITERATIONS, AliInputs, Formula, raw_gamma, raw_slope, released_slope
from dpfl.server.als_bounds import AlsInputs
from dpfl.server.steps import Seen, Situation

if TYPE_CHECKING:
    from torch import Tensor

ESTIMATES = ("released", "raw", "public")

LAG = 10
"""Rounds after which the gradient to compare with is renewed: a long way between two models stands out of the noise."""


def rounds_of(now: Situation) -> int:
    if now.facts.rounds is None:
        raise DpflError("An adaptive number of steps needs budget.rounds: it weighs rounds against privacy.")
    return now.facts.rounds


@dataclass(frozen=True)
class Ali:
    """tau* of (9) by one of its formulas. mu is read off what was `released`, `paid` for by one noisy number more a round,
    taken from `public` clients, `raw` (published), or known beforehand as a number; Gamma is given, `public` or `raw`.
    `whole_budget` raises tau where it would leave privacy unspent at the last round.
    """

    formula: Formula = "corrected"
    gamma: str | float = 10.0
    mu: str | float = "released"
    whole_budget: bool = False
    adaptive = True

    def __post_init__(self) -> None:
        _check_estimate("mu", self.mu, (*ESTIMATES, "paid"))
        _check_estimate("gamma", self.gamma, ("raw", "public"))

    @property
    def asks_raw(self) -> bool:
        return "raw" in (self.mu, self.gamma)

    @property
    def asks_public(self) -> bool:
        return "public" in (self.mu, self.gamma)

    @property
    def extra(self) -> int:
        return int(self.mu == "paid")

    def next(self, now: Situation) -> int:
        facts, rounds = now.facts, rounds_of(now)
        mu = now.memory.get("mu") if isinstance(self.mu, str) else self.mu
        gamma = now.memory.get("gamma") if isinstance(self.gamma, str) else self.gamma
        least = math.ceil(now.left / max(rounds - now.round, 1)) if self.whole_budget else 1
        if mu is None or gamma is None:
            return least
        T = float(ali_bounds.total_iterations(max(now.tau, 1), rounds, now.iterations))
        B = min(facts.batches)
        inputs = AliInputs(float(mu), facts.clip, float(gamma), facts.multiplier, facts.parameters, B, T, facts.rate)
        return max(least, ali_bounds.next_tau(inputs, rounds, now.iterations, now.left, self.formula))

    def learn(self, seen: Seen, memory: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self._gamma(seen) | self._mu(seen, memory)

    def _gamma(self, seen: Seen) -> dict[str, Tensor]:
        if not isinstance(self.gamma, str):
            return {}
        said = _exact(seen, self.gamma)
        return {"gamma": _number(raw_gamma([float(values["losses"]) for values in said.values()], _weights(seen, said)))}

    def _mu(self, seen: Seen, memory: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if self.mu in ("raw", "public"):
            said = _exact(seen, str(self.mu))
            rises, runs = ([float(values[name]) for values in said.values()] for name in ("gradients", "distance"))
            return {"mu": _number(raw_slope(rises, runs, _weights(seen, said)))}
        if self.mu == "paid":
            return {"mu": _number(_paid_slope(seen))}
        if self.mu != "released":
            return {}
        gradient, noise = mean_gradient(seen)
        return remembered(seen, memory, gradient, noise) | _slope("mu", seen, memory, gradient, noise)

    def total(self, rounds: int) -> int:
        return (MOST_ITERATIONS + self.extra) * rounds


@dataclass(frozen=True)
class Als:
    """The tau with the least bound, (13) or that of Wang et al. with a chosen phi; rho, beta and xi as they were `released`,
    from `public` clients, or `raw` (published).
    """

    phi: float = 5e-5
    estimates: str = "released"
    adaptive = True
    extra = 0

    def __post_init__(self) -> None:
        _check_estimate("estimates", self.estimates, ESTIMATES)

    @property
    def asks_raw(self) -> bool:
        return self.estimates == "raw"

    @property
    def asks_public(self) -> bool:
        return self.estimates == "public"

    def next(self, now: Situation) -> int:
        facts, rounds, found = now.facts, rounds_of(now), now.memory.get("estimates")
        if found is None or rounds >= now.iterations:
            return 1
        B = min(facts.batches)
        rho, beta, xi = found.tolist()
        inputs = AlsInputs(rho, beta, xi, facts.rate, facts.multiplier, facts.clip, facts.parameters, B)
        return als_bounds.best_tau(inputs, max(now.tau, 1), rounds, now.iterations, now.left, phi=self.phi).tau

    def learn(self, seen: Seen, memory: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self._from_released(seen, memory) if self.estimates == "released" else self._from_exact(seen)

    def _from_exact(self, seen: Seen) -> dict[str, Tensor]:
        said = _exact(seen, self.estimates)
        weights = np.array(_weights(seen, said))
        gradients = np.stack([values["gradient"] for values in said.values()])
        apart = np.linalg.norm(gradients - weights / weights.sum() @ gradients, axis=1)
        losses, rises, runs = (
            [abs(float(values[name])) for values in said.values()] for name in ("losses", "gradients", "distance")
        )
        found = als_bounds.raw_estimates(losses, rises, runs, apart, weights)
        return {"estimates": torch.tensor([found.rho, found.beta, found.xi], dtype=torch.float64)}

    def _from_released(self, seen: Seen, memory: Mapping[str, Tensor]) -> dict[str, Tensor]:
        facts, clients = seen.facts, list(seen.updates)
        gradient, noise = mean_gradient(seen)
        kept = remembered(seen, memory, gradient, noise) | _slope("beta", seen, memory, gradient, noise)
        if "beta" not in kept:
            return kept
        gradients = torch.stack([released_gradient(seen, client) for client in clients])
        p = ali_bounds.shares([facts.weights[client] for client in clients])
        noises = np.array([noise_energy(seen, client) for client in clients])
        norms, apart = gradients.norm(dim=1).numpy(), (gradients - gradient).norm(dim=1).numpy()
        ones = np.ones(len(clients))
        found = als_bounds.released_estimates(norms, ones, ones, apart, p, noises, facts.parameters, facts.clip)
        estimates = torch.tensor([found.rho, float(kept["beta"]), found.xi], dtype=torch.float64)
        return kept | {"estimates": estimates}

    def total(self, rounds: int) -> int:
        return MOST_ITERATIONS * rounds


def released_gradient(seen: Seen, client: int) -> Tensor:
    """The mean of the noisy gradients that SGD went along: the update is -rate times their sum."""
    return seen.updates[client][: seen.facts.parameters] / (-seen.facts.rate * seen.steps)


def noise_energy(seen: Seen, client: int) -> float:
    """E |noise|^2 in that mean."""
    facts = seen.facts
    return (facts.multiplier * facts.clip / facts.batches[client]) ** 2 * facts.energy / seen.steps


def mean_gradient(seen: Seen) -> tuple[Tensor, float]:
    """Over the clients, and the energy of the noise that is left in it: sum p_i^2 noise_i."""
    clients = list(seen.updates)
    p = ali_bounds.shares([seen.facts.weights[client] for client in clients])
    mean = sum((share * released_gradient(seen, client) for share, client in zip(p.tolist(), clients, strict=True)))
    return mean, float(sum(share**2 * noise_energy(seen, client) for share, client in zip(p, clients, strict=True)))


def remembered(seen: Seen, memory: Mapping[str, Tensor], gradient: Tensor, noise: float) -> dict[str, Tensor]:
    """The gradient to compare with, its model and its noise: kept for LAG rounds, then renewed."""
    names = ("gradient", "model", "noise")
    if "model" in memory and seen.round % LAG:
        return {name: memory[name] for name in names}
    model = seen.vector[: seen.facts.parameters].clone()
    return {"gradient": gradient.clone(), "model": model, "noise": torch.tensor(noise, dtype=torch.float64)}


def _slope(name: str, seen: Seen, memory: Mapping[str, Tensor], gradient: Tensor, noise: float) -> dict[str, Tensor]:
    """|g - g'| / |w - w'| from two released gradients, the energy of their noise removed."""
    if "model" not in memory:
        return {}
    difference = float((gradient - memory["gradient"]).norm())
    distance = float((seen.vector[: seen.facts.parameters] - memory["model"]).norm())
    found = released_slope([difference], [distance], [1.0], [noise + float(memory["noise"])], seen.facts.parameters)
    return {name: torch.tensor(found, dtype=torch.float64)}


def _exact(seen: Seen, estimate: str) -> Mapping[int, Mapping[str, np.ndarray]]:
    """Values without noise: of public clients, or (as published) of all."""
    return seen.public if estimate == "public" else seen.raw


def _weights(seen: Seen, said: Mapping[int, object]) -> list[float]:
    """Public clients, who have no part in the model, count alike."""
    return [1.0] * len(said) if said is seen.public else [seen.facts.weights[client] for client in said]


def _paid_slope(seen: Seen) -> float:
    """sum_i p_i s_i / |w_i - w|, s_i being the noisy norm of a client's difference of mean gradients; not below 0."""
    clients = list(seen.raw)
    p = ali_bounds.shares([seen.facts.weights[client] for client in clients])
    rises = [float(seen.raw[client]["slope"]) / seen.facts.batches[client] for client in clients]
    runs = [float(seen.updates[client].norm()) for client in clients]
    return max(0.0, float(sum(share * rise / run for share, rise, run in zip(p, rises, runs, strict=True))))


def _number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def _check_estimate(what: str, estimate: str | float, known: tuple[str, ...]) -> None:
    if isinstance(estimate, str) and estimate not in known:
        raise DpflError(f"{what} is {', '.join(known)}, or a number where it is known beforehand, not {estimate!r}.")
