"""Which sampling rate, noise, tau and learning rate a budget and a limit on computing call for,
before anything is spent.

Figure of merit: the noise on the sum of all steps over their number, z / (q sqrt(tau R)), for clip
1 and times a client's size. Steps that agree add up like T = tau R, their noise like sqrt(T), so
that less is better; it never falls below that of q = 1. It is a rule of thumb: it knows nothing of
the data, of drift between clients, or of the noise of batches. Nothing private is read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from dpfl.algorithms import PLANNED
from dpfl.algorithms.auto import CLIP, WALK
from dpfl.errors import DpflError
from dpfl.models import Buildable, described
from dpfl.notebook_repr import NotebookView
from dpfl.planning.noise_choices import (
    ENOUGH_STEPS,
    NoiseChoice,
    PlanningQuestion,
    cells,
    coarse,
    exact,
    sketched,
)
from dpfl.planning.speed import ClientWork
from dpfl.privacy import Poisson, affordable
from dpfl.privacy.accounting.accountant import proven_accountant
from dpfl.privacy.accounting.calibration import MAX_RELEASES
from dpfl.privacy.mechanisms.noise_shares import NoiseShares
from dpfl.secagg.group import check_sizes

RATES = (0.015, 0.05, 0.1, 0.2, 0.5, 1.0)
TAUS = (1, 2, 3, 5)
MANY_TAUS = (1, 5, 10, 20)
"""For runs of so few rounds that five steps each would not be enough."""
TOLERANCE = 1.05
"""Noise this close to the least is as good, and the plan that computes less is preferred."""

ASSUMPTIONS = (
    "The unit is one sample of one client, added or removed; every client takes part in every "
    "round.",
    "Total noise, z / (q sqrt(tau R)), is a rule of thumb: it sees no data, no drift between "
    "clients and no batch noise.",
    f"Fewer than {ENOUGH_STEPS} steps count as worse in proportion; within {TOLERANCE - 1:.0%} of "
    "the least, less work wins.",
    f"The clip is {CLIP:g}, below nearly every gradient; the rate is where noise moves the model "
    f"by {WALK:g} over the run.",
    "A model that subtracts a mean (scattering-linear) pays for that with a little more noise, "
    "found when the run starts.",
    "One sampling rate and one noise hold for all clients, since epsilon depends on neither their "
    "size nor their data.",
)


@dataclass(frozen=True)
class ClientPlan:
    """What a client of one size would do by itself with the samples a round that the plan for all
    takes of the largest.
    """

    size: int
    clients: int
    shared_noise: float
    own: NoiseChoice

    @property
    def own_noise(self) -> float:
        return self.own.per_step / self.size


@dataclass(frozen=True)
class Tradeoff(NotebookView, shown_by="plan_page"):
    question: PlanningQuestion
    choices: tuple[NoiseChoice, ...]
    recommended: NoiseChoice

    def allowed(self, choice: NoiseChoice) -> bool:
        return self.question.allows(choice.sampling_rate, choice.tau)

    @property
    def assumptions(self) -> tuple[str, ...]:
        question = self.question
        found = list(ASSUMPTIONS)
        if question.samples_per_second is not None:
            how = (
                f"measured here, on one thread, with {question.measured}"
                if question.measured
                else "as given"
            )
            found.append(
                f"Every client computes {question.samples_per_second:g} samples a second ({how})."
            )
        if shared := question.shared:
            found.append(
                f"Secure aggregation: the server sees sums over at least {shared.survivors} "
                f"clients only, {shared.colluders} "
                f"of whom may be its own; each adds 1/{shared.unknown_shares} of the variance, "
                "and takes one step a round."
            )
        return tuple(found)

    @property
    def bought(self) -> dict[str, int]:
        """The iterations that each accountant would allow with the recommended noise."""
        question, chosen = self.question, self.recommended
        event = Poisson(chosen.sampling_rate).event(chosen.noise_multiplier, 1)
        horizons = {"pld": chosen.iterations, "rdp": 0, "rdp-classic": 0}
        return {
            name: affordable(
                {}, event, question.epsilon, question.delta, proven_accountant(name), horizon
            )
            for name, horizon in horizons.items()
        }

    @property
    def rate(self) -> float | None:
        """The learning rate, where sizes and parameters are known: sum_i p_i x_i has noise z sqrt(d
        K) / (q n) a step, of K clients with all of it each; under secure aggregation of K / (m -
        t)."""
        question, chosen = self.question, self.recommended
        if not question.sizes or question.parameters is None:
            return None
        norm = (
            chosen.per_step
            * CLIP
            * math.sqrt(question.parameters * question.parts)
            / sum(question.sizes)
        )
        return float(f"{WALK / (norm * math.sqrt(chosen.iterations)):.3g}")

    @property
    def on_the_mean(self) -> float | None:
        """Noise a step on the mean over all samples, for clip 1."""
        sizes = self.question.sizes
        return (
            self.recommended.per_step * math.sqrt(self.question.parts) / sum(sizes)
            if sizes
            else None
        )

    @property
    def clients(self) -> tuple[ClientPlan, ...]:
        """A plan a size, largest first, from the cells of the table with the recommended tau."""
        sizes, chosen = self.question.sizes, self.recommended
        limit = self.question.limit
        room = limit if limit < math.inf else chosen.samples(max(sizes, default=0))
        same = [choice for choice in self.choices if choice.tau == chosen.tau]
        found = []
        for size in sorted(set(sizes), reverse=True):
            own = min(
                (choice for choice in same if choice.samples(size) <= room * (1 + 1e-9)),
                key=lambda choice: choice.total,
            )
            share = math.sqrt(self.question.parts / len(sizes))
            found.append(ClientPlan(size, sizes.count(size), chosen.per_step * share / size, own))
        return tuple(found)

    def experiment(self) -> dict[str, Any]:
        """The content of an experiment file that makes the recommended run; noise and rate are
        found again when it starts.
        """
        question, chosen, shared = self.question, self.recommended, self.question.shared
        sums = (
            {"aggregation": "secure", "survivors": shared.survivors, "colluders": shared.colluders}
            if shared
            else {}
        )
        return {
            "data": {"clients": len(question.sizes)} if question.sizes else {},
            "algorithm": {
                "name": PLANNED,
                "tau": chosen.tau,
                "sampling_rate": chosen.sampling_rate,
            },
            "budget": {
                "epsilon": question.epsilon,
                "delta": question.delta,
                "rounds": question.rounds,
            },
            "privacy": {"accountant": question.accountant} | sums,
        }

    def to_dict(self) -> dict[str, Any]:
        def cell(choice: NoiseChoice) -> dict[str, Any]:
            return asdict(choice) | {
                "per_step": choice.per_step,
                "total": choice.total,
                "allowed": self.allowed(choice),
            }

        return {
            "question": asdict(self.question),
            "choices": [cell(choice) for choice in self.choices],
            "recommended": cell(self.recommended) | {"clip": CLIP, "rate": self.rate},
            "iterations_bought": self.bought,
            "clients": [asdict(plan) | {"own_noise": plan.own_noise} for plan in self.clients],
            "assumptions": list(self.assumptions),
        }


def tradeoff(
    question: PlanningQuestion, rates: Sequence[float] = (), taus: Sequence[int] = ()
) -> Tradeoff:
    """The noise of every rate and tau, and the cell to recommend; rates and taus that are given are
    the only ones.
    """
    rates, taus = _grid(question, rates, taus)
    choices, errors = cells(question, rates, taus)
    best = _best(question, choices)
    chosen = exact(question, best, errors[choices.index(best)])
    return Tradeoff(
        question, tuple(chosen if choice is best else choice for choice in choices), chosen
    )


def sketch(
    question: PlanningQuestion, rates: Sequence[float] = (), taus: Sequence[int] = ()
) -> Tradeoff:
    """The same at a tenth of the time: the table by the limit theorem, the recommended cell by the
    accountant that guards a run, on a coarse grid that asks for a little more noise, never less."""
    choices = sketched(question, *_grid(question, rates, taus))
    best = _best(question, choices)
    chosen = coarse(question, best)
    return Tradeoff(
        question, tuple(chosen if choice is best else choice for choice in choices), chosen
    )


def _grid(
    question: PlanningQuestion, rates: Sequence[float], taus: Sequence[int]
) -> tuple[Sequence[float], Sequence[int]]:
    if question.shared and any(tau != 1 for tau in taus):
        raise DpflError(
            "In a secure sum a client takes one step a round (docs/privacy.md): leave tau out, or "
            "give 1."
        )
    taus = taus or (
        (1,)
        if question.shared
        else TAUS
        if question.rounds * max(TAUS) >= ENOUGH_STEPS
        else MANY_TAUS
    )
    if min(taus) < 1 or max(taus) * question.rounds > MAX_RELEASES:
        raise DpflError(
            f"tau must be at least 1, and tau times rounds {MAX_RELEASES:,} at most, "
            f"not {min(taus)} to {max(taus)}."
        )
    return rates or _rates(question, min(taus)), taus


def _best(question: PlanningQuestion, choices: Sequence[NoiseChoice]) -> NoiseChoice:
    """Of the cells that a round has room for: among those near the least noise, the one that
    computes least.
    """
    within = [choice for choice in choices if question.allows(choice.sampling_rate, choice.tau)]
    if not within:
        raise DpflError(
            "No sampling rate and tau stay within the samples a round; raise the limit, or lower "
            "rate or tau."
        )
    least = min(choice.score for choice in within)
    near = [choice for choice in within if choice.score <= TOLERANCE * least]
    return min(near, key=lambda choice: (choice.sampling_rate * choice.tau, choice.score))


def plan(
    epsilon: float,
    rounds: int,
    *,
    delta: float = 1e-5,
    sizes: Sequence[int] = (),
    model: Buildable | nn.Module | str | None = None,
    shape: Sequence[int] = (),
    classes: int = 10,
    parameters: int | None = None,
    samples_per_round: float | None = None,
    seconds_per_round: float | None = None,
    samples_per_second: float | None = None,
    accountant: str = "pld",
    rates: Sequence[float] = (),
    taus: Sequence[int] = (),
    survivors: int | None = None,
    colluders: int | None = None,
) -> Tradeoff:
    """How to spend epsilon over so many rounds; with `survivors` or `colluders` under secure
    aggregation, as they are there.

    A model for samples of a shape gives the number of parameters; where seconds are limited and no
    speed is given, it is measured for about a second, on random numbers.
    """
    measured = ""
    if model is not None:
        if parameters is not None:
            raise DpflError("Give either a model or its parameters.")
        work = ClientWork(described(model), tuple(shape), classes)
        parameters = work.parameters
        if seconds_per_round is not None and samples_per_second is None:
            samples_per_second, measured = float(f"{work.samples_per_second():.3g}"), work.name
    question = PlanningQuestion(
        epsilon, rounds, delta, tuple(sizes), samples_per_round, parameters, accountant,
        seconds_per_round, samples_per_second, measured, _shared(len(sizes), survivors, colluders),
    )  # fmt: skip
    return tradeoff(question, rates, taus)


def _shared(clients: int, survivors: int | None, colluders: int | None) -> NoiseShares | None:
    if survivors is None and colluders is None:
        return None
    if not clients:
        raise DpflError(
            "A plan for secure sums needs the clients' sizes: give --sizes, or --clients and "
            "--size."
        )
    found = NoiseShares(clients if survivors is None else survivors, colluders or 0)
    check_sizes(clients, found.survivors, found.colluders)
    return found


def _rates(question: PlanningQuestion, tau: int) -> tuple[float, ...]:
    """The usual rates, and the one that takes all the samples that a round may."""
    if question.limit == math.inf:
        return RATES
    most = math.floor(1e4 * question.limit / (tau * max(question.sizes))) / 1e4
    return RATES if not 0 < most < 1 else tuple(sorted({*RATES, most}))
