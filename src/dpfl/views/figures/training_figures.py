"""Figures of training: metrics against rounds, epsilon and bytes; tau; steps and their noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpfl.views.curve_sentences import metric_of, metric_sentence
from dpfl.views.figures.canvas import (
    FAINT,
    INK,
    PALETTE,
    FigureFile,
    as_text,
    canvas,
    legend,
    line_style,
    whole_ticks,
)
from dpfl.views.run_lines import LinePoint, RunLines
from dpfl.views.run_tables import RunTables

BANDS = 6
"""With more lines than this, bands would hide each other."""
AXES = {
    "rounds": "round",
    "epsilon": "epsilon used, an upper bound",
    "bytes": "megabytes sent, all clients together",
}
SCALES = {"bytes": 1e-6}
TITLES = {
    "rounds": "by round",
    "epsilon": "by epsilon used",
    "bytes": "by bytes sent",
}


def metrics(lines: Sequence[RunLines], against: str) -> FigureFile | None:
    """Draws the first metric above the loss.

    Args:
        lines: One per group of runs that differ only by their seed.
        against: What the horizontal axis shows: "rounds", "epsilon" or "bytes".

    Returns:
        The figure; None if nothing was measured.
    """
    visible = [
        line for line in lines if line.points(against, "headline") or line.points(against, "loss")
    ]
    if not visible:
        return None
    metric = metric_of(visible)
    percent = 100 if metric == "accuracy" else 1
    figure, (top, bottom) = canvas(2, height=4.6, sharex=True)
    for number, line in enumerate(lines):
        many = len(line.points(against, "headline")) > 40
        style = line_style(number) | {"marker": "" if many else "o", "markersize": 3.5}
        style["label"] = as_text(line.label)
        for axis, value, scale in ((top, "headline", percent), (bottom, "loss", 1)):
            points, wide = line.points(against, value), SCALES.get(against, 1)
            _draw(axis, points, wide, scale, len(visible) <= BANDS, **style)
    for axis in (top, bottom):
        _focus(axis)
    top.set_ylabel("test accuracy, %" if metric == "accuracy" else f"{metric}, test set")
    bottom.set(xlabel=_axis(against, visible), ylabel="test loss, nats")
    if against == "rounds":
        whole_ticks(bottom.xaxis)
    legend(figure, [line.label for line in visible], top)
    title = f"{metric.capitalize()} and loss {TITLES[against]}"
    sentence = metric_sentence(visible, against, metric)
    return FigureFile(f"measured-by-{against}", title, sentence, figure)


def _draw(
    axis: Any, points: Sequence[LinePoint], wide: float, high: float, band: bool, **style: Any
) -> None:
    if not points:
        return
    x, y = [wide * point.x for point in points], [high * point.y for point in points]
    axis.plot(x, y, **style)
    if band and any(point.half for point in points):
        low, top = (
            [high * (point.y + sign * (point.half or 0.0)) for point in points] for sign in (-1, 1)
        )
        axis.fill_between(x, low, top, color=style["color"], alpha=0.15, linewidth=0)


def _focus(axis: Any) -> None:
    """Fits the axis to all lines. A band of few seeds may be far wider than any of them."""
    values = [
        float(value) for line in axis.lines for value in line.get_ydata() if math.isfinite(value)
    ]
    if values and axis.collections:
        room = 0.4 * (max(values) - min(values) or abs(max(values)) or 1.0)
        axis.set_ylim(min(values) - room, max(values) + room)


def _axis(against: str, lines: Sequence[RunLines]) -> str:
    if against != "epsilon":
        return AXES[against]
    words = {run.guarantee for line in lines for run in line.runs if not run.protects_nobody}
    return (
        f"{AXES[against]} ({words.pop()})"
        if len(words) == 1
        else f"{AXES[against]} (units and deltas differ: see the table)"
    )


def taus(lines: Sequence[RunLines]) -> FigureFile | None:
    """Draws the local steps of each round, as in Figures 4 to 6 of the ALI-DPFL paper.

    Args:
        lines: One per group of runs that differ only by their seed.

    Returns:
        The figure; None before the first round has ended.
    """
    points_by_line = {
        number: points
        for number, line in enumerate(lines)
        if (points := line.points("rounds", "tau"))
    }
    if not points_by_line:
        return None
    figure, (axis,) = canvas()
    for number, points in points_by_line.items():
        x, y = [point.x for point in points], [point.y for point in points]
        axis.step(x, y, where="mid", label=as_text(lines[number].label), **line_style(number))
    axis.set(xlabel="round", ylabel="local steps per client, tau")
    axis.set_ylim(bottom=0)
    whole_ticks(axis.xaxis)
    whole_ticks(axis.yaxis)
    legend(figure, [lines[number].label for number in points_by_line], axis)
    values = [point.y for points in points_by_line.values() for point in points]
    low, high = min(values), max(values)
    if low == high:
        sentence = f"Every round has tau = {low:g}."
    elif any(len({point.y for point in points}) > 1 for points in points_by_line.values()):
        sentence = f"Tau ranges from {low:g} to {high:g}: it adapts to what was released."
    else:
        sentence = f"Tau ranges from {low:g} to {high:g}, and is constant within each run."
    cost = "More steps per round save rounds, but every private step costs privacy."
    return FigureFile("tau", "Local steps by round", f"{sentence} {cost}", figure)


def signals(lines: Sequence[RunLines]) -> FigureFile | None:
    """Draws the length of each round's step over the length that its noise alone would have.

    Args:
        lines: One per group of runs that differ only by their seed.

    Returns:
        The figure; None if the noise of no step is known.
    """
    by_line = {
        number: ratios for number, line in enumerate(lines) if (ratios := _ratios(line.runs))
    }
    if not by_line:
        return None
    figure, (axis,) = canvas()
    for number, ratios in by_line.items():
        axis.plot(
            list(ratios),
            list(ratios.values()),
            label=as_text(lines[number].label),
            **line_style(number),
        )
    axis.axhline(1, color=INK, linewidth=1, linestyle=(0, (2, 2)))
    axis.annotate(
        "noise alone",
        (1, 1),
        xycoords=("axes fraction", "data"),
        ha="right",
        va="bottom",
        fontsize=9,
        color=INK,
    )
    low, high = axis.get_ylim()
    axis.set(xlabel="round", ylabel="length of the released step\nover that of its noise")
    axis.set_ylim(min(low, 0.98), max(high, 1.02))
    whole_ticks(axis.xaxis)
    legend(figure, [lines[number].label for number in by_line], axis)
    return FigureFile(
        "signal", "Signal to noise by round", _signal_sentence(lines, by_line), figure
    )


def _signal_sentence(lines: Sequence[RunLines], by_line: Mapping[int, Mapping[int, float]]) -> str:
    """Writes a sentence about the line with the least signal. A step s + n with independent noise n
    has the squared norm |s|^2 + |n|^2, so the signal to noise is sqrt(ratio^2 - 1).
    """
    medians = {
        number: float(np.median(list(ratios.values()))) for number, ratios in by_line.items()
    }
    worst = min(medians, key=lambda number: medians[number])
    signal = math.sqrt(max(0.0, medians[worst] ** 2 - 1))
    line = f" of {lines[worst].label}" if len(by_line) > 1 else ""
    return (
        f"In the median round{line} the step is {medians[worst]:.3g} times as long as its noise "
        f"alone, which is a signal-to-noise ratio of {signal:.2g}. A step that is no longer than "
        "its noise carries no information by itself: only the mean of many rounds moves the model."
    )


def _ratios(runs: Sequence[RunTables]) -> dict[int, float]:
    """Computes the mean ratio by round, at the rounds that all of the runs have."""
    by_run = [
        {step.round: step.norm / step.noise for step in run.steps if step.noise} for run in runs
    ]
    common = set.intersection(*map(set, by_run)) if by_run else set()
    return {
        round: sum(ratios[round] for ratios in by_run) / len(by_run) for round in sorted(common)
    }


def updates(run: RunTables) -> FigureFile | None:
    """Draws single updates, which are kept only where nothing is private.

    Args:
        run: A run without privacy, or one with public clients.

    Returns:
        Their norms, with the clip, and their angles to the last global step; None if there are
        none.
    """
    if not run.single:
        return None
    figure, (norms, angles) = canvas(2, height=4.6, sharex=True)
    rounds = [update.round for update in run.single]
    norms.scatter(
        rounds,
        [update.norm for update in run.single],
        s=10,
        color=PALETTE[0],
        alpha=0.5,
        linewidths=0,
    )
    clips = {update.round: update.clip for update in run.single if update.clip is not None}
    if clips:
        norms.plot(list(clips), list(clips.values()), color=PALETTE[1], label="clip")
        norms.legend(loc="best")
    angle_of = {update: update.angle for update in run.single if update.angle is not None}
    places, degrees = [update.round for update in angle_of], list(angle_of.values())
    angles.scatter(places, degrees, s=10, color=PALETTE[0], alpha=0.5, linewidths=0)
    angles.axhline(90, color=FAINT, linewidth=1.2)
    angles.set(
        xlabel="round",
        ylabel="angle to the last\nglobal step, degrees",
        ylim=(0, 180),
        yticks=(0, 45, 90, 135, 180),
    )
    norms.set(ylabel="L2 norm of an update")
    norms.set_ylim(bottom=0)
    whole_ticks(angles.xaxis)
    public = any(update.whose.startswith("public ") for update in run.single)
    lengths = [update.norm for update in run.single]
    over = sum(update.norm > 0.999 * update.clip for update in run.single if update.clip)
    clip_sentence = f"{over / len(lengths):.0%} reach the clip." if clips else "Nothing is clipped."
    sentence = (
        f"Each point is an update of a {'public ' if public else ''}client. Norms range from "
        f"{min(lengths):.3g} to {max(lengths):.3g}. {clip_sentence} Below 90 degrees an update "
        "continues in the direction of the last step; above, it turns back."
    )
    return FigureFile("updates", "Single updates, which are not private here", sentence, figure)
