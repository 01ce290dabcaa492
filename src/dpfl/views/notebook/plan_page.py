"""A plan in a notebook: its table and sentences, and its noise as curves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpfl.planning.tradeoff import Tradeoff
from dpfl.views.notebook.html import card, note, table
from dpfl.views.plan_view import LEGEND, PlanView

if TYPE_CHECKING:
    from dpfl.views.notebook.figure import NotebookFigure


def html(plan: Tradeoff) -> str:
    """Lays out a plan.

    Args:
        plan: What `dpfl.plan` returns.

    Returns:
        HTML for a notebook cell.
    """
    view = PlanView.of(plan)
    rows = [[rate, *(cell.text for cell in cells)] for rate, cells in view.rows]
    parts = map(note, (LEGEND, *view.sentences))
    return card("what the budget buys", table(view.headings, rows), *parts)


def plot(plan: Tradeoff) -> NotebookFigure:
    """Draws noise against the sampling rate, and the steps that each accountant allows.

    Args:
        plan: What `dpfl.plan` returns.

    Returns:
        Noise per step and total noise, one line per tau; and one bar per accountant.
    """
    from dpfl.views.notebook.figure import NotebookFigure

    figure = NotebookFigure(11, 4)
    steps, total, bars = figure.subplots(1, 3, width_ratios=(3, 3, 2))
    rates = sorted({choice.sampling_rate for choice in plan.choices})
    for tau in sorted({choice.tau for choice in plan.choices}):
        same_tau = [choice for choice in plan.choices if choice.tau == tau]
        line = sorted(same_tau, key=lambda choice: choice.sampling_rate)
        steps.plot(rates, [choice.per_step for choice in line], marker=".")
        total.plot(rates, [choice.total for choice in line], marker=".", label=f"tau {tau}")
    choice = plan.recommendation
    panels = {
        steps: (choice.per_step, "noise per step, z / q"),
        total: (choice.total, "total noise, z / (q sqrt(tau R))"),
    }
    for axis, (value, name) in panels.items():
        axis.plot([choice.sampling_rate], [value], "k*", markersize=12, label="recommended")
        axis.set(xscale="log", xlabel="sampling rate q", ylabel=name)
        axis.set_xticks(rates, [f"{rate:g}" for rate in rates])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    total.legend(fontsize="small")
    steps_by_accountant = plan.iterations_by_accountant
    bars.bar_label(bars.bar(list(steps_by_accountant), list(steps_by_accountant.values())))
    bars.set_ylabel("steps within epsilon, recommended noise")
    bars.margins(y=0.1)
    figure.suptitle(
        f"epsilon {plan.question.epsilon:g}, delta {plan.question.delta:g}, "
        f"{plan.question.rounds} rounds"
    )
    return figure
