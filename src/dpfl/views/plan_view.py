"""A plan in words: the table of sampling rates and taus, and what is recommended.

Terminal, notebook and the planner's web page lay out the same `PlanView`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dpfl.planning.noise_choices import NoiseChoice
from dpfl.planning.tradeoff import CLIP, TOLERANCE, Tradeoff
from dpfl.privacy.figures import rounded_up
from dpfl.privacy.statement_view import large_delta, scope

LEGEND = (
    "Each cell shows the noise per step, z / q, and the total noise, z / (q sqrt(tau R)). "
    "An asterisk marks the recommendation, and parentheses mark cells with too many samples."
)

STEPS_TITLE = "Steps that each accountant allows with this noise"
STEPS_NOTE = (
    "All of these bounds hold. A looser accountant certifies fewer steps for the same epsilon."
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
class PlanSetting:
    """One recommended setting."""

    name: str
    value: str
    note: str = ""
    """What must be known about it, without parentheses."""

    @property
    def text(self) -> str:
        """The setting in a sentence."""
        return f"{self.name} {self.value}{f' ({self.note})' if self.note else ''}"


@dataclass(frozen=True)
class AllowedSteps:
    """How many steps an accountant allows with the recommended noise."""

    accountant: str
    steps: int
    limits_run: bool
    """Whether a run of the plan stops by this accountant."""

    @property
    def label(self) -> str:
        """The name of the accountant, and whether it limits the run."""
        return f"{self.accountant}, which limits the run" if self.limits_run else self.accountant


@dataclass(frozen=True)
class PlanView:
    """A plan for a budget, as people read it."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, tuple[PlanCell, ...]], ...]
    """Sampling rate, and one cell per tau."""
    lead: str
    """What the settings are recommended for: budget, unit and rounds."""
    settings: tuple[PlanSetting, ...]
    details: tuple[str, ...]
    """What the recommendation means for clients and the model, in sentences."""
    warnings: tuple[str, ...]
    """What is wrong with the budget, in sentences."""
    steps: tuple[AllowedSteps, ...]
    assumptions: tuple[str, ...]
    curve: str
    """How to read the curve of total noise by sampling rate."""

    @classmethod
    def of(cls, plan: Tradeoff, unit: str = "sample") -> PlanView:
        """Puts a plan into words.

        Args:
            plan: What `dpfl.plan` returns.
            unit: Whom the guarantee protects: "sample" or "person". Sizes count these.

        Returns:
            The table, the recommendation and its sentences.
        """
        taus = sorted({choice.tau for choice in plan.choices})
        rows = []
        for rate in sorted({choice.sampling_rate for choice in plan.choices}):
            choices = [choice for choice in plan.choices if choice.sampling_rate == rate]
            by_tau = sorted(choices, key=lambda choice: choice.tau)
            rows.append((f"{rate:g}", tuple(_cell(plan, choice) for choice in by_tau)))
        question = plan.question
        return cls(
            headings=("q", *(f"tau {tau}" for tau in taus)),
            rows=tuple(rows),
            lead=(
                f"Recommended for epsilon {question.epsilon:g} ({scope(unit, question.delta)}) "
                f"over {question.rounds:,} rounds"
            ),
            settings=tuple(_settings(plan)),
            details=tuple(_details(plan, unit)),
            warnings=tuple(_warnings(plan, unit)),
            steps=tuple(
                AllowedSteps(name, count, name == question.accountant)
                for name, count in plan.iterations_by_accountant.items()
            ),
            assumptions=plan.assumptions,
            curve=(
                f"Less noise is better. Of the choices within {TOLERANCE - 1:.0%} of the least "
                f"noise, sampling rate {plan.recommendation.sampling_rate:g} with tau "
                f"{plan.recommendation.tau} computes least; larger batches hardly help."
            ),
        )

    @property
    def recommendation(self) -> str:
        """The recommended settings in one sentence."""
        return f"{self.lead}: {', '.join(setting.text for setting in self.settings)}."

    @property
    def sentences(self) -> tuple[str, ...]:
        """Recommendation, details, warnings, steps and assumptions, one paragraph each."""
        steps_text = "; ".join(f"{bar.steps:,} by {bar.label}" for bar in self.steps)
        return (
            self.recommendation,
            *self.details,
            *self.warnings,
            f"{STEPS_TITLE}: {steps_text}.",
            f"Assumptions: {' '.join(self.assumptions)}",
        )


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
    figures = f"{choice.per_step:.1f}, {choice.total:.3f}"
    is_recommended, is_allowed = choice is plan.recommendation, plan.allowed(choice)
    text = f"* {figures}" if is_recommended else figures if is_allowed else f"({figures})"
    return PlanCell(text, is_recommended, is_allowed)


def _settings(plan: Tradeoff) -> Iterator[PlanSetting]:
    choice = plan.recommendation
    yield PlanSetting("sampling rate", f"{choice.sampling_rate:g}")
    yield PlanSetting("tau", str(choice.tau), "local steps per round")
    yield PlanSetting("noise multiplier", f"{rounded_up(choice.noise_multiplier):.4f}")
    if plan.rate:
        yield PlanSetting("clip", f"{CLIP:g}")
        yield PlanSetting("learning rate", f"{plan.rate:g}")
    else:
        missing = "give --parameters or --model, and the clients' sizes, to plan the learning rate"
        yield PlanSetting("clip", f"{CLIP:g}", missing)


def _details(plan: Tradeoff, unit: str) -> Iterator[str]:
    choice, question = plan.recommendation, plan.question
    if question.sizes:
        clients = "Each" if len(set(question.sizes)) == 1 else "The largest"
        samples = choice.samples(max(question.sizes))
        yield f"{clients} client then takes {samples:,.0f} {unit}s per round."
    if question.parameters:
        yield f"The model has {question.parameters:,} parameters."
    yield "Noise and learning rate are computed again when the run starts."
    if question.noise_shares and plan.on_the_mean:
        alone = plan.on_the_mean * question.noise_shares.unknown_shares**0.5
        yield (
            "Noise per step on the mean over all clients, under secure aggregation: "
            f"{plan.on_the_mean:.3g} for clip 1. If every client added all of the noise, it would "
            f"be {alone:.3g}."
        )


def _warnings(plan: Tradeoff, unit: str) -> Iterator[str]:
    delta, largest = plan.question.delta, max(plan.question.sizes, default=0)
    if largest and delta >= 1 / largest:
        sentence = large_delta(delta, largest, f"the largest client's {unit}s")
        yield f"{sentence[:1].upper()}{sentence[1:]}"
