"""Which sampling rate, noise, tau and learning rate a budget and a limit on computing call for, before anything is spent.

Figure of merit: the noise on the sum of all steps over their number, z / (q sqrt(tau R)), for clip 1 and times a client's size.
Steps that agree add up like T = tau R, their noise like sqrt(T), so that less is better; it never falls below that of q = 1. It
is a rule of thumb: it knows nothing of the data, of drift between clients, or of the noise of batches. Nothing private is read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dpfl.algorithms import PLANNED
from dpfl.errors import DpflError
from dpfl.privacy import Budget, Poisson, affordable
from dpfl.privacy.accountant import DISCRETISATION, Accountant, gaussian_delta, on_grid, proving
from dpfl.privacy.calibrate import noise_near
from dpfl.privacy.events import Spent

RATES = (0.015, 0.05, 0.1, 0.2, 0.5, 1.0)
TAUS = (1, 2, 3, 5)
MANY_TAUS = (1, 5, 10, 20)
"""For runs of so few rounds that five steps each would not be enough."""
ENOUGH_STEPS = 100
"""A run of fewer steps is counted as worse in proportion; with 100 rounds, one step in each beat three (docs/results.md)."""
TOLERANCE = 1.05
"""Noise this close to the least is as good, and the plan that computes less is preferred."""
WITHIN = 1e-3
"""How far below epsilon, in proportion, cells may lie that are not recommended; the recommended one lies within 1e-4."""
CLIP = 1.0
WALK = 15.0
"""How far the noise of a whole run may carry the model: what was good for `cnn` in docs/results.md lies between 12 and 24."""
LARGEST_RATE = 4.0

ASSUMPTIONS = (
    "The unit is one sample of one client, added or removed; every client takes part in every round.",
    "Total noise, z / (q sqrt(tau R)), is a rule of thumb: it sees no data, no drift between clients and no batch noise.",
    f"Fewer than {ENOUGH_STEPS} steps count as worse in proportion; within {TOLERANCE - 1:.0%} of the least, less work wins.",
    f"The clip is {CLIP:g}; the rate (up to {LARGEST_RATE:g}) is where noise moves the model by {WALK:g} over the run.",
    "One sampling rate and one noise hold for all clients, since epsilon depends on neither their size nor their data.",
)


@dataclass(frozen=True)
class Question:
    """What is given: the budget, and what is publicly known of clients, model and machines."""

    epsilon: float
    rounds: int
    delta: float = 1e-5
    sizes: tuple[int, ...] = ()
    samples_per_round: float | None = None
    parameters: int | None = None
    accountant: str = "pld"

    def __post_init__(self) -> None:
        Budget(epsilon=self.epsilon, delta=self.delta, rounds=self.rounds)
        proving(self.accountant)
        if any(size < 1 for size in self.sizes):
            raise DpflError("Every client needs at least 1 sample; leave out clients that have none.")
        if self.samples_per_round is not None and not self.samples_per_round > 0:
            raise DpflError(f"The samples a round must be above 0, not {self.samples_per_round:g}.")
        if self.samples_per_round is not None and not self.sizes:
            raise DpflError("A limit on samples a round needs the clients' sizes: give --sizes, or --clients and --size.")
        if self.parameters is not None and self.parameters < 1:
            raise DpflError(f"A model has at least 1 parameter, not {self.parameters}.")


@dataclass(frozen=True)
class Choice:
    """One cell of the table: the noise that all of the rounds need at this rate and tau."""

    sampling_rate: float
    tau: int
    noise_multiplier: float
    iterations: int

    @property
    def per_step(self) -> float:
        """Noise on the mean of a batch, for clip 1 and times the client's size: z / q."""
        return self.noise_multiplier / self.sampling_rate

    @property
    def total(self) -> float:
        return self.per_step / math.sqrt(self.iterations)

    @property
    def score(self) -> float:
        return self.total * max(1.0, ENOUGH_STEPS / self.iterations)

    def samples(self, size: int) -> float:
        """Expected samples a round of a client of this size."""
        return self.sampling_rate * self.tau * size


@dataclass(frozen=True)
class ClientPlan:
    """What a client of one size would do by itself with the samples a round that the plan for all takes of the largest."""

    size: int
    clients: int
    shared_noise: float
    own: Choice

    @property
    def own_noise(self) -> float:
        return self.own.per_step / self.size


@dataclass(frozen=True)
class Tradeoff:
    question: Question
    choices: tuple[Choice, ...]
    recommended: Choice

    def allowed(self, choice: Choice) -> bool:
        return _allowed(self.question, choice.sampling_rate, choice.tau)

    @property
    def bought(self) -> dict[str, int]:
        """The iterations that each accountant would allow with the recommended noise."""
        question, chosen = self.question, self.recommended
        event = Poisson(chosen.sampling_rate).event(chosen.noise_multiplier, 1)
        horizons = {"pld": chosen.iterations, "rdp": 0, "rdp-classic": 0}
        return {
            name: affordable({}, event, question.epsilon, question.delta, proving(name), horizon)
            for name, horizon in horizons.items()
        }

    @property
    def rate(self) -> float | None:
        """The learning rate, where sizes and parameters are known: sum_i p_i x_i has noise z sqrt(d K) / (q n) a step."""
        question, chosen = self.question, self.recommended
        if not question.sizes or question.parameters is None:
            return None
        norm = chosen.per_step * CLIP * math.sqrt(question.parameters * len(question.sizes)) / sum(question.sizes)
        return float(f"{min(LARGEST_RATE, WALK / (norm * math.sqrt(chosen.iterations))):.2g}")

    @property
    def clients(self) -> tuple[ClientPlan, ...]:
        """A plan a size, largest first, from the cells of the table with the recommended tau."""
        sizes, chosen = self.question.sizes, self.recommended
        room = self.question.samples_per_round or chosen.samples(max(sizes, default=0))
        same = [choice for choice in self.choices if choice.tau == chosen.tau]
        found = []
        for size in sorted(set(sizes), reverse=True):
            own = min((choice for choice in same if choice.samples(size) <= room * (1 + 1e-9)), key=lambda choice: choice.total)
            found.append(ClientPlan(size, sizes.count(size), chosen.per_step / size, own))
        return tuple(found)

    def experiment(self) -> dict[str, Any]:
        """The content of an experiment file that makes the recommended run."""
        question, chosen = self.question, self.recommended
        algorithm = {
            "name": PLANNED,
            "tau": chosen.tau,
            "sampling_rate": chosen.sampling_rate,
            "noise_multiplier": chosen.noise_multiplier,
            "clip": CLIP,
        }
        return {
            "data": {"clients": len(question.sizes)} if question.sizes else {},
            "algorithm": algorithm | ({"rate": self.rate} if self.rate else {}),
            "budget": {"epsilon": question.epsilon, "delta": question.delta, "rounds": question.rounds},
            "privacy": {"accountant": question.accountant},
        }

    def to_dict(self) -> dict[str, Any]:
        def cell(choice: Choice) -> dict[str, Any]:
            return asdict(choice) | {"per_step": choice.per_step, "total": choice.total, "allowed": self.allowed(choice)}

        return {
            "question": asdict(self.question),
            "choices": [cell(choice) for choice in self.choices],
            "recommended": cell(self.recommended) | {"clip": CLIP, "rate": self.rate},
            "iterations_bought": self.bought,
            "clients": [asdict(plan) | {"own_noise": plan.own_noise} for plan in self.clients],
            "assumptions": list(ASSUMPTIONS),
        }


def tradeoff(question: Question, rates: Sequence[float] = (), taus: Sequence[int] = ()) -> Tradeoff:
    """The noise of every rate and tau, and the cell to recommend; rates and taus that are given are the only ones."""
    taus = taus or (TAUS if question.rounds * max(TAUS) >= ENOUGH_STEPS else MANY_TAUS)
    if min(taus) < 1:
        raise DpflError(f"tau must be at least 1, not {min(taus)}.")
    rates = rates or _rates(question, min(taus))
    choices, errors = _choices(question, rates, taus)
    within = [choice for choice in choices if _allowed(question, choice.sampling_rate, choice.tau)]
    if not within:
        raise DpflError("No sampling rate and tau stay within the samples a round; raise the limit, or lower rate or tau.")
    least = min(choice.score for choice in within)
    near = [choice for choice in within if choice.score <= TOLERANCE * least]
    best = min(near, key=lambda choice: (choice.sampling_rate * choice.tau, choice.score))
    exact = _exact(question, best, errors[choices.index(best)])
    return Tradeoff(question, tuple(exact if choice is best else choice for choice in choices), exact)


def _rates(question: Question, tau: int) -> tuple[float, ...]:
    """The usual rates, and the one that takes all the samples that a round may."""
    if question.samples_per_round is None:
        return RATES
    most = math.floor(1e4 * question.samples_per_round / (tau * max(question.sizes))) / 1e4
    return RATES if not 0 < most < 1 else tuple(sorted({*RATES, most}))


def _allowed(question: Question, rate: float, tau: int) -> bool:
    limit = question.samples_per_round
    return limit is None or rate * tau * max(question.sizes) <= limit * (1 + 1e-9)


def _choices(question: Question, rates: Sequence[float], taus: Sequence[int]) -> tuple[tuple[Choice, ...], tuple[float, ...]]:
    """All cells, and the errors of the limit theorem at them, which are small where q T is large and grow as it falls."""
    found: dict[tuple[float, int], tuple[Choice, float]] = {}
    first = 0.0
    for rate in sorted(rates, reverse=True):
        scale = first
        for tau in sorted(taus):
            steps = tau * question.rounds
            found[rate, tau] = _choice(question, rate, tau, scale / (rate * steps), _quick(question, steps))
            scale = found[rate, tau][1] * rate * steps
            first = scale if tau == min(taus) else first
    choices, errors = zip(*(found[rate, tau] for rate in rates for tau in taus), strict=True)
    return choices, errors


def _exact(question: Question, choice: Choice, error: float) -> Choice:
    """The cell to 1e-4, by the accountant that guards a run: on its coarse grid, unless that asks for more noise."""
    by = proving(question.accountant)
    found, error = _choice(question, choice.sampling_rate, choice.tau, error, by.quick or by, 1e-4)
    if found.noise_multiplier > 1.005 * choice.noise_multiplier:
        found, _ = _choice(question, choice.sampling_rate, choice.tau, error, by, 1e-4)
    return found


def _quick(question: Question, steps: int) -> Accountant:
    """Losses on a grid of a tenth of a step's deviation, which moves epsilon by some 1e-3, and never finer than the figure's."""
    width = max(DISCRETISATION, 0.1 * _gaussian(question.epsilon, question.delta) / math.sqrt(steps))
    return on_grid(width) if question.accountant == "pld" else proving(question.accountant)


def _choice(
    question: Question, rate: float, tau: int, error: float, by: Accountant, within: float = WITHIN
) -> tuple[Choice, float]:
    sampling, steps = Poisson(rate), tau * question.rounds

    def limit(epsilon: float) -> float:
        """By the limit theorem (Bu et al. 2020), mu^2 = T q^2 (exp(1/z^2) - 1); exact for q = 1."""
        mu = _gaussian(epsilon, question.delta)
        return 1 / math.sqrt(math.log1p((mu / rate) ** 2 / steps)) if rate < 1 else math.sqrt(steps) / mu

    def events(z: float) -> Spent:
        return {sampling.event(z, 1): steps}

    noise, error = noise_near(limit, error, events, question.epsilon, question.delta, by, within)
    return Choice(rate, tau, math.ceil(noise * 1e4) / 1e4, steps), error


def _gaussian(epsilon: float, delta: float) -> float:
    """The largest mu = 1/z with which one Gaussian release stays within epsilon."""
    low, high = 0.0, 1e3
    for _ in range(50):
        mu = (low + high) / 2
        low, high = (low, mu) if gaussian_delta(mu, epsilon) > delta else (mu, high)
    return low
