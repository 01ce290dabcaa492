"""Chooses the sampling rate, noise, tau and learning rate that suit a budget and a limit on
computing.

The figure of merit is the noise on the sum of all steps over their number, z / (q sqrt(tau R)), for
clip norm 1 and times a client's size. Steps that agree add up like T = tau R, and their noise adds
up like sqrt(T). So less is better, and it never falls below the value of q = 1. This is a rule of
thumb: it knows nothing of the data, of drift between clients, or of the noise of batches. Nothing
private is read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dpfl.algorithms import AUTO
from dpfl.algorithms.auto import CLIP, WALK
from dpfl.deprecation import deprecated_names, keep_old_names
from dpfl.errors import DpflError
from dpfl.notebook_repr import NotebookView
from dpfl.planning.noise_choices import (
    ENOUGH_STEPS,
    NoiseChoice,
    PlanningQuestion,
    cells,
    coarse,
    exact,
    sketch_choices,
)
from dpfl.planning.planner import planned_rate
from dpfl.privacy import Poisson, affordable
from dpfl.privacy.accounting.accountant import proven_accountant
from dpfl.privacy.accounting.calibration import MAX_RELEASES

RATES = (0.015, 0.05, 0.1, 0.2, 0.5, 1.0)
TAUS = (1, 2, 3, 5)
MANY_TAUS = (1, 5, 10, 20)
"""Steps for runs with so few rounds that five steps per round would not be enough."""
TOLERANCE = 1.05
"""Noise within this factor of the least is as good. The plan that computes less then wins."""

ASSUMPTIONS = (
    "The unit is one sample of one client, added or removed; every client takes part in every "
    "round.",
    "Total noise, z / (q sqrt(tau R)), is a rule of thumb: it ignores the data, drift between "
    "clients and batch noise.",
    f"The plan avoids fewer than {ENOUGH_STEPS} steps. Among plans within {TOLERANCE - 1:.0%} of "
    "the least noise, it takes the one that computes least.",
    f"The clip norm is {CLIP:g}, which is below nearly every gradient norm. At the learning rate, "
    f"the noise of the whole run moves the model by {WALK:g}.",
    "A model that subtracts a mean (scattering-linear) pays for it with a little more noise, which "
    "is planned when the run starts.",
    "One sampling rate and one noise hold for all clients, since epsilon depends on neither their "
    "size nor their data.",
)


@dataclass(frozen=True)
class ClientPlan:
    """The plan of a client of one size by itself, with the samples per round of the common plan.

    Attributes:
        size: Declared samples of the client.
        clients: Number of clients of this size.
        shared_noise: Noise of one step on the client's mean gradient under the common plan.
        own: The best cell of the table for this client alone.
    """

    size: int
    clients: int
    shared_noise: float
    own: NoiseChoice

    @property
    def own_noise(self) -> float:
        """Noise of one step on the client's mean gradient under its own plan."""
        return self.own.per_step / self.size


@keep_old_names(bought="iterations_by_accountant", recommended="recommendation")
@dataclass(frozen=True)
class Tradeoff(NotebookView, shown_by="plan_page"):
    """The table of a plan, and the cell to recommend.

    Attributes:
        question: What was asked.
        choices: All cells: a sampling rate, a tau, and the noise that they need.
        recommendation: The recommended cell.
    """

    question: PlanningQuestion
    choices: tuple[NoiseChoice, ...]
    recommendation: NoiseChoice

    def allowed(self, choice: NoiseChoice) -> bool:
        """Says whether a cell stays within what the largest client can compute.

        Args:
            choice: The cell.

        Returns:
            Whether it does.
        """
        return self.question.allows(choice.sampling_rate, choice.tau)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the recommendation rests on, in sentences."""
        question = self.question
        sentences = list(ASSUMPTIONS)
        if question.samples_per_second is not None:
            how = (
                f"measured here, on one thread, with {question.measured_model}"
                if question.measured_model
                else "as given"
            )
            sentences.append(
                f"Every client computes {question.samples_per_second:g} samples per second ({how})."
            )
        if noise_shares := question.noise_shares:
            sentences.append(
                f"Secure aggregation: the server sees sums over at least {noise_shares.survivors} "
                f"clients only, and {noise_shares.colluders} of them may collude with it. Each "
                f"client adds 1/{noise_shares.unknown_shares} of the variance and takes one step "
                "per round."
            )
        return tuple(sentences)

    @property
    def iterations_by_accountant(self) -> dict[str, int]:
        """Number of iterations that each accountant would allow with the recommended noise."""
        question, choice = self.question, self.recommendation
        event = Poisson(choice.sampling_rate).event(choice.noise_multiplier, 1)
        horizons = {"pld": choice.iterations, "rdp": 0, "rdp-classic": 0}
        return {
            name: affordable(
                {}, event, question.epsilon, question.delta, proven_accountant(name), horizon
            )
            for name, horizon in horizons.items()
        }

    @property
    def rate(self) -> float | None:
        """Learning rate, if sizes and parameters are known.

        The noise of a step on sum_i p_i x_i has deviation z sqrt(K) / (q n) on each parameter,
        where each of K clients adds all of its noise. Under secure aggregation K / (m - t) takes
        the place of K.
        """
        stddev, parameters = self.on_the_mean, self.question.parameters
        if stddev is None or parameters is None:
            return None
        return planned_rate(WALK, CLIP * stddev, parameters, self.recommendation.iterations)

    @property
    def on_the_mean(self) -> float | None:
        """Noise of a step on the mean gradient over all samples, for clip norm 1."""
        sizes = self.question.sizes
        return (
            self.recommendation.per_step * math.sqrt(self.question.parts) / sum(sizes)
            if sizes
            else None
        )

    @property
    def clients(self) -> tuple[ClientPlan, ...]:
        """A plan per client size, largest first, from the cells with the recommended tau."""
        sizes, best = self.question.sizes, self.recommendation
        limit = self.question.limit
        room = limit if limit < math.inf else best.samples(max(sizes, default=0))
        same_tau = [choice for choice in self.choices if choice.tau == best.tau]
        plans = []
        for size in sorted(set(sizes), reverse=True):
            own = min(
                (choice for choice in same_tau if choice.samples(size) <= room * (1 + 1e-9)),
                key=lambda choice: choice.total,
            )
            share = math.sqrt(self.question.parts / len(sizes))
            plans.append(ClientPlan(size, sizes.count(size), best.per_step * share / size, own))
        return tuple(plans)

    def experiment(self) -> dict[str, Any]:
        """Builds the experiment file that makes the recommended run.

        Returns:
            Its content. Noise and learning rate are planned again when the run starts.
        """
        question, choice = self.question, self.recommendation
        noise_shares = question.noise_shares
        sums = (
            {
                "aggregation": "secure",
                "survivors": noise_shares.survivors,
                "colluders": noise_shares.colluders,
            }
            if noise_shares
            else {}
        )
        return {
            "data": {"clients": len(question.sizes)} if question.sizes else {},
            "algorithm": {
                "name": AUTO,
                "tau": choice.tau,
                "sampling_rate": choice.sampling_rate,
            },
            "budget": {
                "epsilon": question.epsilon,
                "delta": question.delta,
                "rounds": question.rounds,
            },
            "privacy": {"accountant": question.accountant} | sums,
        }

    def to_dict(self) -> dict[str, Any]:
        """Returns the plan as plain values, for JSON.

        Returns:
            Question, cells, recommendation, plans per client and assumptions.
        """

        def cell(choice: NoiseChoice) -> dict[str, Any]:
            return asdict(choice) | {
                "per_step": choice.per_step,
                "total": choice.total,
                "allowed": self.allowed(choice),
            }

        return {
            "question": self.question.to_dict(),
            "choices": [cell(choice) for choice in self.choices],
            "recommended": cell(self.recommendation) | {"clip": CLIP, "rate": self.rate},
            "iterations_bought": self.iterations_by_accountant,
            "clients": [asdict(plan) | {"own_noise": plan.own_noise} for plan in self.clients],
            "assumptions": list(self.assumptions),
        }


def tradeoff(
    question: PlanningQuestion, rates: Sequence[float] = (), taus: Sequence[int] = ()
) -> Tradeoff:
    """Computes the table of a plan by the accountant that guards a run.

    Args:
        question: The question.
        rates: Sampling rates to compare; by default the usual ones.
        taus: Local steps per round to compare; by default the usual ones.

    Returns:
        The table, with the recommended cell computed to 1e-4.

    Raises:
        DpflError: No cell stays within the limit, or rates or taus are out of range.
    """
    rates, taus = _grid(question, rates, taus)
    choices, errors = cells(question, rates, taus)
    best = _best(question, choices)
    recommended_choice = exact(question, best, errors[choices.index(best)])
    return _with_recommended(question, choices, best, recommended_choice)


def sketch(
    question: PlanningQuestion, rates: Sequence[float] = (), taus: Sequence[int] = ()
) -> Tradeoff:
    """Computes the same table in a tenth of the time.

    The table comes from the limit theorem. The recommended cell comes from the accountant that
    guards a run, on a coarse grid that asks for a little more noise, never less.

    Args:
        question: The question.
        rates: Sampling rates to compare; by default the usual ones.
        taus: Local steps per round to compare; by default the usual ones.

    Returns:
        The table, with the recommended cell.

    Raises:
        DpflError: No cell stays within the limit, or rates or taus are out of range.
    """
    choices = sketch_choices(question, *_grid(question, rates, taus))
    best = _best(question, choices)
    return _with_recommended(question, choices, best, coarse(question, best))


def _with_recommended(
    question: PlanningQuestion,
    choices: Sequence[NoiseChoice],
    best: NoiseChoice,
    recommended_choice: NoiseChoice,
) -> Tradeoff:
    """Makes the table in which the best cell is computed more closely."""
    cells = tuple(recommended_choice if choice is best else choice for choice in choices)
    return Tradeoff(question, cells, recommended_choice)


def _grid(
    question: PlanningQuestion, rates: Sequence[float], taus: Sequence[int]
) -> tuple[Sequence[float], Sequence[int]]:
    if question.noise_shares and any(tau != 1 for tau in taus):
        raise DpflError(
            "In a secure sum a client takes one step per round (see the page on privacy): leave "
            "out tau, or set it to 1."
        )
    if not taus and question.noise_shares:
        taus = (1,)
    elif not taus:
        taus = TAUS if question.rounds * max(TAUS) >= ENOUGH_STEPS else MANY_TAUS
    if min(taus) < 1 or max(taus) * question.rounds > MAX_RELEASES:
        raise DpflError(
            f"tau must be at least 1, and tau times rounds {MAX_RELEASES:,} at most, "
            f"not {min(taus)} to {max(taus)}."
        )
    return rates or _rates(question, min(taus)), taus


def _best(question: PlanningQuestion, choices: Sequence[NoiseChoice]) -> NoiseChoice:
    """Chooses a cell that a round has room for: among those near the least noise, the one that
    computes least.
    """
    within = [choice for choice in choices if question.allows(choice.sampling_rate, choice.tau)]
    if not within:
        raise DpflError(
            "Every combination of sampling rate and tau exceeds the samples per round; raise the "
            "limit, or lower rate or tau."
        )
    least = min(choice.score for choice in within)
    near = [choice for choice in within if choice.score <= TOLERANCE * least]
    return min(near, key=lambda choice: (choice.sampling_rate * choice.tau, choice.score))


def _rates(question: PlanningQuestion, tau: int) -> tuple[float, ...]:
    """Lists the usual rates, and the rate that takes all the samples that a round may."""
    if question.limit == math.inf:
        return RATES
    most = math.floor(1e4 * question.limit / (tau * max(question.sizes))) / 1e4
    return RATES if not 0 < most < 1 else tuple(sorted({*RATES, most}))


if not TYPE_CHECKING:
    __getattr__ = deprecated_names(__name__, {"plan": "dpfl.planning.plan.plan"})
