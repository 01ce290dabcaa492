"""A trade-off as a table and as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from dpfl.planning.noise_choices import NoiseChoice
from dpfl.planning.tradeoff import CLIP, Tradeoff
from dpfl.views.html import card, note
from dpfl.views.html import table as html_table

if TYPE_CHECKING:
    from dpfl.views.notebook import NotebookFigure

SHOWN_SIZES = 8


def table(found: Tradeoff) -> Table:
    """A row a sampling rate and two columns a tau: noise a step and noise in all."""
    out = Table(box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left", caption_justify="left")
    out.title = (
        "noise a step (z / q), and in all (z / (q sqrt(tau R))); * is recommended, () "
        "takes more samples than allowed"
    )
    taus = sorted({choice.tau for choice in found.choices})
    for heading in ("q", *(f"tau {tau}" for tau in taus)):
        out.add_column(heading, justify="right", no_wrap=True)
    for rate in sorted({choice.sampling_rate for choice in found.choices}):
        row = [choice for choice in found.choices if choice.sampling_rate == rate]
        out.add_row(
            f"{rate:g}",
            *(_cell(found, choice) for choice in sorted(row, key=lambda choice: choice.tau)),
        )
    return out


def _cell(found: Tradeoff, choice: NoiseChoice) -> str:
    figures = f"{choice.per_step:.1f}  {choice.total:.3f}"
    if choice is found.recommended:
        return f"[bold]* {figures}[/bold]"
    return figures if found.allowed(choice) else f"[dim]({figures})[/dim]"


def client_table(found: Tradeoff) -> Table:
    """What one plan for all means for clients of unequal size, and what each would do by itself."""
    out = Table(box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left")
    out.title = (
        "noise a step on a client's mean gradient (clip 1), in the plan for all and by "
        "itself with as many samples"
    )
    for heading in ("samples", "clients", "plan for all", "by itself", "with q", "and noise z"):
        out.add_column(heading, justify="right", no_wrap=True)
    plans = found.clients
    shown = (
        plans
        if len(plans) <= SHOWN_SIZES
        else (*plans[: SHOWN_SIZES // 2], *plans[-SHOWN_SIZES // 2 :])
    )
    for plan in shown:
        own = (
            f"{plan.own_noise:.3g}",
            f"{plan.own.sampling_rate:g}",
            f"{plan.own.noise_multiplier:g}",
        )
        out.add_row(str(plan.size), str(plan.clients), f"{plan.shared_noise:.3g}", *own)
    if len(plans) > len(shown):
        out.caption = f"the largest and the smallest of {len(plans)} sizes"
    return out


def sentences(found: Tradeoff) -> Iterator[str]:
    """What is recommended, what other accountants would have bought, and what was assumed."""
    chosen, question = found.recommended, found.question
    needed = " (the learning rate needs the clients' sizes, and --parameters or --model)"
    rate = f", learning rate {found.rate:g}" if found.rate else needed
    yield (
        f"Recommended for epsilon {question.epsilon:g} at delta {question.delta:g} over "
        f"{question.rounds} rounds: "
        f"sampling rate {chosen.sampling_rate:g}, tau {chosen.tau}, "
        f"noise multiplier {chosen.noise_multiplier:g}, clip {CLIP:g}{rate}."
    )
    if question.sizes:
        yield (
            f"That is {chosen.samples(max(question.sizes)):.0f} samples a round for the largest "
            "client."
        )
        if question.delta * max(question.sizes) >= 1:
            yield (
                f"Lower delta: {question.delta:g} is not below one over the largest client's "
                "samples."
            )
    if question.shared and found.on_the_mean:
        alone = found.on_the_mean * question.shared.unknown_shares**0.5
        yield (
            "Noise a step on the mean over all clients, under secure aggregation: "
            f"{found.on_the_mean:.3g} for clip 1; "
            f"{alone:.3g} if every client added all of it."
        )
    bought = ", ".join(f"{count} by {name}" for name, count in found.bought.items())
    yield f"Iterations that this noise buys within epsilon: {bought}."
    yield "Assumed: " + " ".join(found.assumptions)


def html(found: Tradeoff) -> str:
    """The table of rates and taus, and what is recommended."""
    taus = sorted({choice.tau for choice in found.choices})
    rows = []
    for rate in sorted({choice.sampling_rate for choice in found.choices}):
        row = sorted(
            (choice for choice in found.choices if choice.sampling_rate == rate),
            key=lambda choice: choice.tau,
        )
        rows.append([f"{rate:g}", *(_plain(found, choice) for choice in row)])
    legend = (
        "noise a step (z / q), and in all; * is recommended, () takes more samples than allowed"
    )
    return card(
        "what the budget buys",
        html_table(["q", *(f"tau {tau}" for tau in taus)], rows),
        *map(note, (legend, *sentences(found))),
    )


def _plain(found: Tradeoff, choice: NoiseChoice) -> str:
    figures = f"{choice.per_step:.1f}  {choice.total:.3f}"
    return (
        f"* {figures}"
        if choice is found.recommended
        else figures
        if found.allowed(choice)
        else f"({figures})"
    )


def plot(found: Tradeoff) -> NotebookFigure:
    return draw(found)


def draw(found: Tradeoff) -> NotebookFigure:
    """Noise a step and in all against q, a line a tau; and what each accountant allows with the
    recommended noise.
    """
    from dpfl.views.notebook import NotebookFigure

    figure = NotebookFigure(11, 4)
    steps, total, bars = figure.subplots(1, 3, width_ratios=(3, 3, 2))
    rates = sorted({choice.sampling_rate for choice in found.choices})
    for tau in sorted({choice.tau for choice in found.choices}):
        line = sorted(
            (choice for choice in found.choices if choice.tau == tau),
            key=lambda choice: choice.sampling_rate,
        )
        steps.plot(rates, [choice.per_step for choice in line], marker=".")
        total.plot(rates, [choice.total for choice in line], marker=".", label=f"tau {tau}")
    chosen = found.recommended
    shown = {
        steps: (chosen.per_step, "noise a step, z / q"),
        total: (chosen.total, "noise in all, z / (q sqrt(tau R))"),
    }
    for axis, (value, name) in shown.items():
        axis.plot([chosen.sampling_rate], [value], "k*", markersize=12, label="recommended")
        axis.set(xscale="log", xlabel="sampling rate q", ylabel=name)
        axis.set_xticks(rates, [f"{rate:g}" for rate in rates])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    total.legend(fontsize="small")
    bought = found.bought
    bars.bar_label(bars.bar(list(bought), list(bought.values())))
    bars.set_ylabel("iterations within epsilon, recommended noise")
    bars.margins(y=0.1)
    figure.suptitle(
        f"epsilon {found.question.epsilon:g}, delta {found.question.delta:g}, "
        f"{found.question.rounds} rounds"
    )
    return figure
