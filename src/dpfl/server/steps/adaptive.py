"""Step policies of ALI-DPFL and ALS-DPFL: the tau with the smallest convergence bound. Constants of
the loss come from released, paid or public values, or as published from raw ones (`asks_raw`).
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
from dpfl.server.steps.ali_bounds import MOST_ITERATIONS, AliInputs, Formula
from dpfl.server.steps.als_bounds import AlsInputs, Theorem2
from dpfl.server.steps.estimates import check_range, raw_gamma, raw_slope, shares
from dpfl.server.steps.policy import RoundObservation, StepContext, StepFacts, StepPolicy

if TYPE_CHECKING:
    from torch import Tensor

ESTIMATES = ("released", "raw", "public")
BOUNDS, PHI = "bounds", "phi"
"""What ALS remembers of (13): in how many rounds it was defined and in how many it was not, and its
phi.
"""

Values = Mapping[int, Mapping[str, np.ndarray]]
"""What each client sent beside its update, by name."""


def rounds_of(step_facts: StepFacts) -> int:
    """Returns the rounds of a run.

    Args:
        step_facts: What is known of the run.

    Returns:
        The rounds that its budget allows.

    Raises:
        DpflError: The budget does not limit the rounds.
    """
    if step_facts.rounds is None:
        raise DpflError(
            "An adaptive number of steps needs budget.rounds: it weighs rounds against privacy."
        )
    return step_facts.rounds


@part("steps.ali", most_tau="most")
@dataclass(frozen=True)
class AliSteps(StepPolicy):
    """ALI-DPFL: tau* of (9) by one of its formulas.

    The sound sources of mu are "released" (the gradients that clients release anyway), "paid" (one
    more noisy number per round), "public" (public clients), or a number that is known before
    training. The published ones are "raw" (the slope of raw gradients from the new model to those
    of the clients, as in the paper) and "steps" (the clients' last steps over that distance, as in
    its code).

    Attributes:
        formula: The reading of (9).
        gamma: Gamma as a number, or the source of the change of losses by the last step: "public",
            or "raw" as in the authors' code.
        mu: mu as a number, or its source.
        whole_budget: Whether tau is raised where it would leave privacy unspent at the last round.
        most: The largest tau.
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
    def reads_released(self) -> bool:
        return self.mu in ("released", "paid")

    @property
    def paid_slopes(self) -> int:
        return int(self.mu == "paid")

    def next(self, context: StepContext) -> int:
        step_facts, rounds = context.step_facts, rounds_of(context.step_facts)
        mu = context.memory.get("mu") if isinstance(self.mu, str) else self.mu
        gamma = context.memory.get("gamma") if isinstance(self.gamma, str) else self.gamma
        least = (
            min(self.most, math.ceil(context.remaining / max(rounds - context.round, 1)))
            if self.whole_budget
            else 1
        )
        if mu is None or gamma is None:
            return least
        T = float(ali_bounds.total_iterations(max(context.tau, 1), rounds, context.iterations))
        B = (
            max(1, int(min(step_facts.batches)))
            if self.formula == "code"
            else min(step_facts.batches)
        )
        inputs = AliInputs(
            float(mu),
            step_facts.clip,
            float(gamma),
            step_facts.multiplier,
            step_facts.parameters,
            B,
            T,
            step_facts.rate,
        )
        tau = ali_bounds.next_tau(
            inputs, rounds, context.iterations, context.remaining, self.formula
        )
        return max(least, min(self.most, tau))

    def learn(
        self, observation: RoundObservation, memory: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        return self._gamma(observation) | self._mu(observation, memory)

    def _gamma(self, observation: RoundObservation) -> dict[str, Tensor]:
        if not isinstance(self.gamma, str):
            return {}
        exact = _exact_values(observation, self.gamma)
        changes = [float(values["last_losses"]) for values in exact.values()]
        return {"gamma": _number(raw_gamma(changes, _weights(observation, exact)))}

    def _mu(self, observation: RoundObservation, memory: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if self.mu in ("raw", "public"):
            exact = observation.public if self.mu == "public" else observation.again()
            rises, runs = (
                [float(values[name]) for values in exact.values()]
                for name in ("gradients", "distance")
            )
            if not exact:
                return {}
            return {"mu": _number(raw_slope(rises, runs, _weights(observation, exact)))}
        if self.mu in ("paid", "steps"):
            estimate = _paid_slope if self.mu == "paid" else _step_slope
            return {"mu": _number(estimate(observation))}
        if self.mu != "released":
            return {}
        return slope("mu", observation, memory)

    def total(self, rounds: int) -> int:
        return (self.most + self.paid_slopes) * rounds

    def notes(self, memory: Mapping[str, Tensor]) -> Sequence[str]:
        return ()


@part("steps.als", most_tau="most")
@dataclass(frozen=True)
class AlsSteps(StepPolicy):
    """ALS-DPFL: the tau with the least bound.

    The bound is (13) where it is defined, else that of Wang et al. with a chosen phi. (13) is
    defined where its own phi, omega (1 - beta eta / 2) - sigma^2 d / lambda^2, is above 0.

    Attributes:
        phi: The control parameter of the bound of Wang et al.
        estimates: Where rho, beta and xi come from: "released" gradients, "public" clients, or
            "raw" values as published.
        omega: The inverse square of the distance to the optimum.
        lam: lambda, the least loss above that of the optimum. Theorem 2 has it below 1.
        most: The largest tau.
    """

    phi: float = 5e-5
    estimates: str = "released"
    omega: float = 1.0
    lam: float = 1.0
    most: int = MOST_ITERATIONS
    adaptive = True
    paid_slopes = 0

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

    def next(self, context: StepContext) -> int:
        rounds, estimates = rounds_of(context.step_facts), context.memory.get("estimates")
        if estimates is None or rounds >= context.iterations:
            return 1
        inputs = _als_inputs(context.step_facts, estimates)
        best = als_bounds.best_tau(
            inputs,
            max(context.tau, 1),
            rounds,
            context.iterations,
            context.remaining,
            self._theorem(inputs),
            self.phi,
        )
        return min(self.most, best.tau)

    def _theorem(self, inputs: AlsInputs) -> Theorem2:
        return Theorem2(als_bounds.phi_of_theorem(self.omega, self.lam, inputs), self.lam)

    def learn(
        self, observation: RoundObservation, memory: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        following = (
            self._from_released(observation, memory)
            if self.estimates == "released"
            else self._from_exact(observation)
        )
        if "estimates" not in following:
            return following
        theorem = self._theorem(_als_inputs(observation.step_facts, following["estimates"]))
        defined_rounds, undefined_rounds = memory.get(BOUNDS, torch.zeros(2)).tolist()
        counts = torch.tensor(
            [defined_rounds + (theorem.phi > 0), undefined_rounds + (theorem.phi <= 0)],
            dtype=torch.float64,
        )
        return following | {BOUNDS: counts, PHI: _number(theorem.phi)}

    def notes(self, memory: Mapping[str, Tensor]) -> Sequence[str]:
        """Says how often the paper's own bound was defined.

        Args:
            memory: What the policy remembers at the end.

        Returns:
            One sentence; none before the first estimates.
        """
        if BOUNDS not in memory:
            return ()
        defined_rounds, undefined_rounds = (int(count) for count in memory[BOUNDS])
        return (
            f"the paper's bound (13) was defined after {defined_rounds} of "
            f"{defined_rounds + undefined_rounds} rounds; "
            "after the others that of "
            f"Wang et al. stood in; its phi, which must be above 0, was {float(memory[PHI]):.4g} "
            "at last",
        )

    def _from_exact(self, observation: RoundObservation) -> dict[str, Tensor]:
        exact = _exact_values(observation, self.estimates)
        weights = np.array(_weights(observation, exact))
        gradients = np.stack([values["gradient"] for values in exact.values()])
        apart = np.linalg.norm(gradients - weights / weights.sum() @ gradients, axis=1)
        losses, rises, runs = (
            [abs(float(values[name])) for values in exact.values()]
            for name in ("losses", "gradients", "distance")
        )
        raw = als_bounds.raw_estimates(losses, rises, runs, apart, weights)
        return {"estimates": torch.tensor([raw.rho, raw.beta, raw.xi], dtype=torch.float64)}

    def _from_released(
        self, observation: RoundObservation, memory: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        step_facts, clients = observation.step_facts, list(observation.updates)
        following = slope("beta", observation, memory)
        if "beta" not in following:
            return following
        gradients = torch.stack([released_gradient(observation, client) for client in clients])
        p = shares([step_facts.weights[client] for client in clients])
        noises = np.array([noise_energy(observation, client) for client in clients])
        norms = gradients.norm(dim=1).numpy()
        apart = (gradients - mean_gradient(observation)[0]).norm(dim=1).numpy()
        # beta comes from the slope: ones stand for the differences and distances that give it.
        ones = np.ones(len(clients))
        sound = als_bounds.released_estimates(
            norms, ones, ones, apart, p, noises, step_facts.parameters, step_facts.clip
        )
        beta = float(following["beta"])
        estimates = torch.tensor([sound.rho, beta, sound.xi], dtype=torch.float64)
        return following | {"estimates": estimates}

    def total(self, rounds: int) -> int:
        return self.most * rounds


def _als_inputs(step_facts: StepFacts, estimates: Tensor) -> AlsInputs:
    rho, beta, xi = estimates.tolist()
    return AlsInputs(
        rho,
        beta,
        xi,
        step_facts.rate,
        step_facts.multiplier,
        step_facts.clip,
        step_facts.parameters,
        min(step_facts.batches),
    )


def _exact_values(observation: RoundObservation, source: str) -> Values:
    """Returns values without noise: of public clients, or (as published) of all."""
    return observation.public if source == "public" else observation.raw


def _weights(observation: RoundObservation, exact: Values) -> list[float]:
    """Returns the weights of the clients that sent values. Public clients, who have no part in the
    model, count alike.
    """
    if exact is observation.public:
        return [1.0] * len(exact)
    return [observation.step_facts.weights[client] for client in exact]


def _paid_slope(observation: RoundObservation) -> float:
    """Computes sum_i p_i s_i / |w_i - w|, at least 0, where s_i is the noisy norm of a client's
    difference of mean gradients.

    The gradients are clipped at ten times the level of steps, so that few are. The result is about
    as large as the raw slope.
    """
    step_facts, clients = observation.step_facts, list(observation.raw)
    p = shares([step_facts.weights[client] for client in clients])
    rises = [
        float(observation.raw[client]["slope"]) / step_facts.batches[client] for client in clients
    ]
    runs = [float(observation.updates[client].norm()) for client in clients]
    return max(
        0.0, float(sum(share * rise / run for share, rise, run in zip(p, rises, runs, strict=True)))
    )


def _step_slope(observation: RoundObservation) -> float:
    """Computes mu as the authors' code does: sum_i p_i |x_i after its last step - x_i before it| /
    |x_i - the new aggregate|.
    """
    clients = list(observation.raw)
    p = shares([observation.step_facts.weights[client] for client in clients])
    middle = sum(
        share * observation.updates[client]
        for share, client in zip(p.tolist(), clients, strict=True)
    )
    runs = [float((observation.updates[client] - middle).norm()) for client in clients]
    rises = [float(observation.raw[client]["last_step"]) for client in clients]
    return raw_slope(rises, runs, p)


def _number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def check_most(most: int) -> None:
    """Refuses a largest tau that is not a whole number from 1 to 100.

    Args:
        most: The largest tau.

    Raises:
        DpflError: It is refused.
    """
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= MOST_ITERATIONS:
        raise DpflError(
            "most_tau, the largest number of local steps per round, is a whole number from 1 to "
            f"{MOST_ITERATIONS}, not {most!r}."
        )


def _check_estimate(what: str, estimate: str | float, sources: tuple[str, ...]) -> None:
    if isinstance(estimate, str) and estimate not in sources:
        raise DpflError(
            f"{what} is {', '.join(sources)}, or a number where it is known beforehand, not "
            f"{estimate!r}."
        )
