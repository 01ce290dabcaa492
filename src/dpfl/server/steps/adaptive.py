"""Step policies that follow a convergence bound (ALI-DPFL, ALS-DPFL), from released values or, as
published, from raw ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpfl.client.task import DIFFERENCES, LAST_STEP
from dpfl.codec import part
from dpfl.errors import DpflError
from dpfl.lazy_import import torch
from dpfl.server.released_estimates import mean_gradient, noise_energy, released_gradient, slope
from dpfl.server.steps import ali_bounds, als_bounds
from dpfl.server.steps.ali_bounds import (
    MOST_ITERATIONS,
    AliInputs,
    Formula,
    check_range,
    raw_gamma,
    raw_slope,
)
from dpfl.server.steps.als_bounds import AlsInputs, Theorem2
from dpfl.server.steps.policy import RoundObservation, StepContext, StepFacts

if TYPE_CHECKING:
    from torch import Tensor

ESTIMATES = ("released", "raw", "public")
BOUNDS, PHI = "bounds", "phi"
"""What ALS remembers of (13): after how many rounds it was defined, and was not, and its phi."""


def rounds_of(now: StepContext) -> int:
    if now.facts.rounds is None:
        raise DpflError(
            "An adaptive number of steps needs budget.rounds: it weighs rounds against privacy."
        )
    return now.facts.rounds


@part("steps.ali", most_tau="most")
@dataclass(frozen=True)
class AliSteps:
    """tau* of (9) by one of its formulas. mu is read off what was `released`, `paid` for by one
    noisy number more a round, taken from `public` clients, or known beforehand as a number;
    published it is the slope of `raw` gradients from the new model to those that clients came to
    (the paper), or their last `steps` over that way (its code). Gamma is given, or the change of
    losses by the last step: of `public` clients, or `raw` (the code). `whole_budget` raises tau
    where it would leave privacy unspent at the last round; it is `most` in any case.
    """

    formula: Formula = "corrected"
    gamma: str | float = 10.0
    mu: str | float = "released"
    whole_budget: bool = False
    most: int = MOST_ITERATIONS
    adaptive = True

    def __post_init__(self) -> None:
        check_most(self.most)
        _check_estimate("mu", self.mu, (*ESTIMATES, "paid", "steps"))
        _check_estimate("gamma", self.gamma, ("raw", "public"))

    @property
    def asks_raw(self) -> bool:
        return self.mu in ("raw", "steps") or self.gamma == "raw"

    @property
    def raw_values(self) -> tuple[str, ...]:
        return (LAST_STEP,) if self.mu == "steps" or self.gamma == "raw" else ()

    @property
    def asks_public(self) -> bool:
        return "public" in (self.mu, self.gamma)

    @property
    def extra(self) -> int:
        return int(self.mu == "paid")

    def next(self, now: StepContext) -> int:
        facts, rounds = now.facts, rounds_of(now)
        mu = now.memory.get("mu") if isinstance(self.mu, str) else self.mu
        gamma = now.memory.get("gamma") if isinstance(self.gamma, str) else self.gamma
        least = (
            min(self.most, math.ceil(now.left / max(rounds - now.round, 1)))
            if self.whole_budget
            else 1
        )
        if mu is None or gamma is None:
            return least
        T = float(ali_bounds.total_iterations(max(now.tau, 1), rounds, now.iterations))
        B = max(1, int(min(facts.batches))) if self.formula == "code" else min(facts.batches)
        inputs = AliInputs(
            float(mu),
            facts.clip,
            float(gamma),
            facts.multiplier,
            facts.parameters,
            B,
            T,
            facts.rate,
        )
        return max(
            least,
            min(
                self.most,
                ali_bounds.next_tau(inputs, rounds, now.iterations, now.left, self.formula),
            ),
        )

    def learn(self, seen: RoundObservation, memory: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self._gamma(seen) | self._mu(seen, memory)

    def _gamma(self, seen: RoundObservation) -> dict[str, Tensor]:
        if not isinstance(self.gamma, str):
            return {}
        said = _exact(seen, self.gamma)
        changes = [float(values["last_losses"]) for values in said.values()]
        return {"gamma": _number(raw_gamma(changes, _weights(seen, said)))}

    def _mu(self, seen: RoundObservation, memory: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if self.mu in ("raw", "public"):
            said = seen.public if self.mu == "public" else seen.again()
            rises, runs = (
                [float(values[name]) for values in said.values()]
                for name in ("gradients", "distance")
            )
            return {"mu": _number(raw_slope(rises, runs, _weights(seen, said)))} if said else {}
        if self.mu in ("paid", "steps"):
            return {"mu": _number((_paid_slope if self.mu == "paid" else _step_slope)(seen))}
        if self.mu != "released":
            return {}
        return slope("mu", seen, memory)

    def total(self, rounds: int) -> int:
        return (self.most + self.extra) * rounds

    def notes(self, memory: Mapping[str, Tensor]) -> Sequence[str]:
        return ()


@part("steps.als", most_tau="most")
@dataclass(frozen=True)
class AlsSteps:
    """The tau with the least bound: (13) where it is defined, else that of Wang et al. with a
    chosen phi. rho, beta and xi are as they were `released`, from `public` clients, or `raw`
    (published).

    (13) is defined where its own phi, omega (1 - beta eta / 2) - sigma^2 d / lambda^2, is above 0,
    with omega the inverse square of the way to the optimum and lambda the least loss above it,
    which Theorem 2 has below 1; both are given. tau is `most` in any case.
    """

    phi: float = 5e-5
    estimates: str = "released"
    omega: float = 1.0
    lam: float = 1.0
    most: int = MOST_ITERATIONS
    adaptive = True
    extra = 0

    def __post_init__(self) -> None:
        check_most(self.most)
        _check_estimate("estimates", self.estimates, ESTIMATES)
        check_range("omega", self.omega, 0, strict=True)
        check_range("lam", self.lam, 0, strict=True)

    @property
    def asks_raw(self) -> bool:
        return self.estimates == "raw"

    @property
    def raw_values(self) -> tuple[str, ...]:
        return (DIFFERENCES,) if self.asks_raw else ()

    @property
    def asks_public(self) -> bool:
        return self.estimates == "public"

    def next(self, now: StepContext) -> int:
        rounds, found = rounds_of(now), now.memory.get("estimates")
        if found is None or rounds >= now.iterations:
            return 1
        inputs = _als_inputs(now.facts, found)
        theorem = self._theorem(inputs)
        best = als_bounds.best_tau(
            inputs, max(now.tau, 1), rounds, now.iterations, now.left, theorem, self.phi
        )
        return min(self.most, best.tau)

    def _theorem(self, inputs: AlsInputs) -> Theorem2:
        return Theorem2(als_bounds.phi_of_theorem(self.omega, self.lam, inputs), self.lam)

    def learn(self, seen: RoundObservation, memory: Mapping[str, Tensor]) -> dict[str, Tensor]:
        learnt = (
            self._from_released(seen, memory)
            if self.estimates == "released"
            else self._from_exact(seen)
        )
        if "estimates" not in learnt:
            return learnt
        theorem = self._theorem(_als_inputs(seen.facts, learnt["estimates"]))
        defined, undefined = memory.get(BOUNDS, torch.zeros(2)).tolist()
        counts = torch.tensor(
            [defined + (theorem.phi > 0), undefined + (theorem.phi <= 0)], dtype=torch.float64
        )
        return learnt | {BOUNDS: counts, PHI: _number(theorem.phi)}

    def notes(self, memory: Mapping[str, Tensor]) -> Sequence[str]:
        """How often the paper's own bound could be asked."""
        if BOUNDS not in memory:
            return ()
        defined, undefined = (int(count) for count in memory[BOUNDS])
        return (
            f"the paper's bound (13) was defined after {defined} of {defined + undefined} rounds; "
            "after the others that of "
            f"Wang et al. stood in; its phi, which must be above 0, was {float(memory[PHI]):.4g} "
            "at last",
        )

    def _from_exact(self, seen: RoundObservation) -> dict[str, Tensor]:
        said = _exact(seen, self.estimates)
        weights = np.array(_weights(seen, said))
        gradients = np.stack([values["gradient"] for values in said.values()])
        apart = np.linalg.norm(gradients - weights / weights.sum() @ gradients, axis=1)
        losses, rises, runs = (
            [abs(float(values[name])) for values in said.values()]
            for name in ("losses", "gradients", "distance")
        )
        found = als_bounds.raw_estimates(losses, rises, runs, apart, weights)
        return {"estimates": torch.tensor([found.rho, found.beta, found.xi], dtype=torch.float64)}

    def _from_released(
        self, seen: RoundObservation, memory: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        facts, clients = seen.facts, list(seen.updates)
        kept = slope("beta", seen, memory)
        if "beta" not in kept:
            return kept
        gradients = torch.stack([released_gradient(seen, client) for client in clients])
        p = ali_bounds.shares([facts.weights[client] for client in clients])
        noises = np.array([noise_energy(seen, client) for client in clients])
        norms, apart = (
            gradients.norm(dim=1).numpy(),
            (gradients - mean_gradient(seen)[0]).norm(dim=1).numpy(),
        )
        ones = np.ones(len(clients))
        found = als_bounds.released_estimates(
            norms, ones, ones, apart, p, noises, facts.parameters, facts.clip
        )
        estimates = torch.tensor([found.rho, float(kept["beta"]), found.xi], dtype=torch.float64)
        return kept | {"estimates": estimates}

    def total(self, rounds: int) -> int:
        return self.most * rounds


def _als_inputs(facts: StepFacts, estimates: Tensor) -> AlsInputs:
    rho, beta, xi = estimates.tolist()
    return AlsInputs(
        rho,
        beta,
        xi,
        facts.rate,
        facts.multiplier,
        facts.clip,
        facts.parameters,
        min(facts.batches),
    )


def _exact(seen: RoundObservation, estimate: str) -> Mapping[int, Mapping[str, np.ndarray]]:
    """Values without noise: of public clients, or (as published) of all."""
    return seen.public if estimate == "public" else seen.raw


def _weights(seen: RoundObservation, said: Mapping[int, object]) -> list[float]:
    """Public clients, who have no part in the model, count alike."""
    return (
        [1.0] * len(said)
        if said is seen.public
        else [seen.facts.weights[client] for client in said]
    )


def _paid_slope(seen: RoundObservation) -> float:
    """sum_i p_i s_i / |w_i - w|, s_i being the noisy norm of a client's difference of mean
    gradients; not below 0.

    The gradients are clipped at ten times the level of steps, so that few are: it has about the
    size of the raw slope.
    """
    clients = list(seen.raw)
    p = ali_bounds.shares([seen.facts.weights[client] for client in clients])
    rises = [float(seen.raw[client]["slope"]) / seen.facts.batches[client] for client in clients]
    runs = [float(seen.updates[client].norm()) for client in clients]
    return max(
        0.0, float(sum(share * rise / run for share, rise, run in zip(p, rises, runs, strict=True)))
    )


def _step_slope(seen: RoundObservation) -> float:
    """As the authors' code has it: sum_i p_i |x_i after its last step - x_i before it| / |x_i - the
    new aggregate|.
    """
    clients = list(seen.raw)
    p = ali_bounds.shares([seen.facts.weights[client] for client in clients])
    middle = sum(
        share * seen.updates[client] for share, client in zip(p.tolist(), clients, strict=True)
    )
    runs = [float((seen.updates[client] - middle).norm()) for client in clients]
    return raw_slope([float(seen.raw[client]["last_step"]) for client in clients], runs, p)


def _number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def check_most(most: int) -> None:
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= MOST_ITERATIONS:
        raise DpflError(
            "The most local steps a round (most_tau) is a whole number from 1 to "
            f"{MOST_ITERATIONS}, not {most!r}."
        )


def _check_estimate(what: str, estimate: str | float, known: tuple[str, ...]) -> None:
    if isinstance(estimate, str) and estimate not in known:
        raise DpflError(
            f"{what} is {', '.join(known)}, or a number where it is known beforehand, not "
            f"{estimate!r}."
        )
