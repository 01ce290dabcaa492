"""A plan in words: the table of sampling rates and taus, and what is recommended.

Terminal and notebook lay out the same `PlanView`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dpfl.planning.noise_choices import NoiseChoice
from dpfl.planning.tradeoff import CLIP, Tradeoff

LEGEND = (
    "Each cell: noise per step, z / q, and total noise, z / (q sqrt(tau R)). * marks the "
    "recommendation; () exceeds the allowed samples."
)

CLIENT_HEADINGS = ("samples", "clients", "shared plan", "own plan", "with q", "and noise z")
CLIENT_LEGEND = (
    "Noise per step on a client's mean gradient (clip 1): in the shared plan, and in a plan of its "
    "own with as many samples per round."
)
SHOWN_SIZES = 8


@dataclass(frozen=True)
class PlanCell:
    """One sampling rate with one tau."""

    text: str
    recommended: bool
    allowed: bool


@dataclass(frozen=True)
class PlanView:
    """A plan for a budget, as people read it."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, tuple[PlanCell, ...]], ...]
    """Sampling rate, and one cell per tau."""
    sentences: tuple[str, ...]
    """The recommendation, what other accountants would allow, and the assumptions."""

    @classmethod
    def of(cls, plan: Tradeoff) -> PlanView:
        """Puts a plan into words.

        Args:
            plan: What `dpfl.plan` returns.

        Returns:
            The table and its sentences.
        """
        taus = sorted({choice.tau for choice in plan.choices})
        rows = []
        for rate in sorted({choice.sampling_rate for choice in plan.choices}):
            choices = [choice for choice in plan.choices if choice.sampling_rate == rate]
            by_tau = sorted(choices, key=lambda choice: choice.tau)
            rows.append((f"{rate:g}", tuple(_cell(plan, choice) for choice in by_tau)))
        headings = ("q", *(f"tau {tau}" for tau in taus))
        return cls(headings, tuple(rows), tuple(_sentences(plan)))


@dataclass(frozen=True)
class ClientPlansView:
    """The effect of a shared plan on clients of unequal size."""

    rows: tuple[tuple[str, ...], ...]
    note: str
    """Which sizes are shown, if not all of them."""

    @classmethod
    def of(cls, plan: Tradeoff) -> ClientPlansView:
        """Compares the shared plan with a plan of each client's own.

        Args:
            plan: What `dpfl.plan` returns.

        Returns:
            One row per size; of many sizes, the largest and the smallest.
        """
        plans, note = list(plan.clients), ""
        if len(plans) > SHOWN_SIZES:
            note = f"the largest and the smallest of {len(plans)} sizes"
            plans = plans[: SHOWN_SIZES // 2] + plans[-SHOWN_SIZES // 2 :]
        rows = tuple(
            (
                str(client.size),
                str(client.clients),
                f"{client.shared_noise:.3g}",
                f"{client.own_noise:.3g}",
                f"{client.own.sampling_rate:g}",
                f"{client.own.noise_multiplier:g}",
            )
            for client in plans
        )
        return cls(rows, note)


def _cell(plan: Tradeoff, choice: NoiseChoice) -> PlanCell:
    figures = f"{choice.per_step:.1f}  {choice.total:.3f}"
    recommended, allowed = choice is plan.recommended, plan.allowed(choice)
    text = f"* {figures}" if recommended else figures if allowed else f"({figures})"
    return PlanCell(text, recommended, allowed)


def _sentences(plan: Tradeoff) -> Iterator[str]:
    choice, question = plan.recommended, plan.question
    rate = " (give --parameters or --model, and the clients' sizes, to plan the learning rate)"
    if plan.rate:
        rate = f", learning rate {plan.rate:g}"
    yield (
        f"Recommended for epsilon {question.epsilon:g} at delta {question.delta:g} over "
        f"{question.rounds} rounds: sampling rate {choice.sampling_rate:g}, tau {choice.tau}, "
        f"noise multiplier {choice.noise_multiplier:g}, clip {CLIP:g}{rate}."
    )
    if question.sizes:
        samples = choice.samples(max(question.sizes))
        yield f"The largest client then takes {samples:.0f} samples per round."
        if question.delta * max(question.sizes) >= 1:
            yield (
                f"Lower delta: {question.delta:g} is not below 1 / (samples of the largest client)."
            )
    if question.shared and plan.on_the_mean:
        alone = plan.on_the_mean * question.shared.unknown_shares**0.5
        yield (
            "Noise per step on the mean over all clients, under secure aggregation: "
            f"{plan.on_the_mean:.3g} for clip 1. If every client added all of the noise, it would "
            f"be {alone:.3g}."
        )
    allowed = ", ".join(f"{count} by {name}" for name, count in plan.bought.items())
    yield f"Steps that each accountant allows with this noise: {allowed}."
    yield "Assumptions: " + " ".join(plan.assumptions)
