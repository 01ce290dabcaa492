"""How training went, drawn: what was measured against rounds, epsilon and bytes; tau; the steps of
rounds and their noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpfl.privacy.statement import rounded_up
from dpfl.run.metrics import LESS_IS_BETTER
from dpfl.run.metrics import figure as figure_in_words
from dpfl.views.canvas import (
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
from dpfl.views.lines import LinePoint, RunLines
from dpfl.views.run_tables import RunTables

BANDS = 6
"""Of more lines than this the bands would hide each other."""
AXES = {
    "rounds": "round",
    "epsilon": "epsilon used, an upper bound",
    "bytes": "megabytes sent, all clients together",
}
MIXED = "each task's own metric"
SCALES = {"bytes": 1e-6}


def measured(lines: Sequence[RunLines], against: str) -> FigureFile | None:
    """The headline of the task above the loss, against rounds, epsilon or bytes."""
    drawn = [
        line for line in lines if line.points(against, "headline") or line.points(against, "loss")
    ]
    if not drawn:
        return None
    names = {run.headline for line in drawn for run in line.runs}
    name = next(iter(names)) if len(names) == 1 else MIXED
    figure, (top, bottom) = canvas(2, height=4.6, sharex=True)
    for number, line in enumerate(lines):
        many = len(line.points(against, "headline")) > 40
        style = line_style(number) | {"marker": "" if many else "o", "markersize": 3.5}
        for axis, value, scale in (
            (top, "headline", 100 if name == "accuracy" else 1),
            (bottom, "loss", 1),
        ):
            _draw(
                axis,
                line.points(against, value),
                SCALES.get(against, 1),
                scale,
                len(drawn) <= BANDS,
                label=as_text(line.label),
                **style,
            )
    for axis in (top, bottom):
        _focus(axis)
    top.set_ylabel("test accuracy, %" if name == "accuracy" else f"{name}, test set")
    bottom.set(xlabel=_axis(against, drawn), ylabel="test loss, nats")
    if against == "rounds":
        whole_ticks(bottom.xaxis)
    legend(figure, [line.label for line in drawn], top)
    title = {
        "rounds": "by round",
        "epsilon": "for the epsilon spent",
        "bytes": "for the bytes sent",
    }[against]
    sentence = _measured_sentence(drawn, against, name)
    return FigureFile(
        f"measured-by-{against}", f"{name.capitalize()} and loss {title}", sentence, figure
    )


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
    """On the lines, all of them: a band of few seeds may be wider than any of them is high."""
    values = [
        float(value) for line in axis.lines for value in line.get_ydata() if math.isfinite(value)
    ]
    if values and axis.collections:
        room = 0.4 * (max(values) - min(values) or abs(max(values)) or 1.0)
        axis.set_ylim(min(values) - room, max(values) + room)


def _axis(against: str, lines: Sequence[RunLines]) -> str:
    if against != "epsilon":
        return AXES[against]
    words = {run.guarantee for line in lines for run in line.runs if run.unit != "none"}
    return (
        f"{AXES[against]} ({words.pop()})"
        if len(words) == 1
        else f"{AXES[against]} (units and deltas differ: see the table)"
    )


def _measured_sentence(lines: Sequence[RunLines], against: str, name: str) -> str:
    less = name in LESS_IS_BETTER
    ends = {
        line.label: points[-1] for line in lines if (points := line.points(against, "headline"))
    }
    if not ends:
        return (
            "Nothing was measured but the loss: the task has no headline, or there was no "
            "public test set."
        )
    if len(ends) == 1:
        end = next(iter(ends.values()))
        where = {
            "rounds": f"round {end.x:.0f}",
            "epsilon": f"epsilon {rounded_up(end.x):.4f}",
            "bytes": f"{end.x * 1e-6:.3g} MB",
        }[against]
        still = f"a curve still {'falling' if less else 'rising'} there would use more budget"
        return f"The run ends with {figure_in_words(name, end.y)} at {where}; {still}."
    side = "lower" if less else "higher"
    best = (min if less else max)(ends, key=lambda label: ends[label].y)
    fair = {
        "rounds": "Read it at equal rounds; privacy may differ between the lines.",
        "epsilon": f"At the same epsilon the {side} line is the better trade; only this comparison "
        "is a fair one.",
        "bytes": f"At the same bytes the {side} line is the better use of the network.",
    }[against]
    band = (
        " Bands are 95 % intervals of the mean over seeds."
        if any(point.half for point in ends.values())
        else ""
    )
    if name == MIXED:
        return (
            f"Tasks differ, and so do their metrics: lines of two tasks cannot be compared.{band}"
        )
    return (
        f"{best} ends {'lowest' if less else 'highest'}, with "
        f"{figure_in_words(name, ends[best].y)}. {fair}{band}"
    )


def taus(lines: Sequence[RunLines]) -> FigureFile | None:
    """Local steps of each round (ALI-DPFL, Figures 4 to 6)."""
    drawn = {
        number: points
        for number, line in enumerate(lines)
        if (points := line.points("rounds", "tau"))
    }
    if not drawn:
        return None
    figure, (axis,) = canvas()
    for number, points in drawn.items():
        x, y = [point.x for point in points], [point.y for point in points]
        axis.step(x, y, where="mid", label=as_text(lines[number].label), **line_style(number))
    axis.set(xlabel="round", ylabel="local steps of a client, tau")
    axis.set_ylim(bottom=0)
    whole_ticks(axis.xaxis)
    whole_ticks(axis.yaxis)
    legend(figure, [lines[number].label for number in drawn], axis)
    low, high = (
        pick(point.y for points in drawn.values() for point in points) for pick in (min, max)
    )
    follows = any(len({point.y for point in points}) > 1 for points in drawn.values())
    said = (
        f"Every round has tau = {low:g}." if low == high else f"Tau runs from {low:g} to {high:g}"
    )
    said += (
        ""
        if low == high
        else ": it follows what was released."
        if follows
        else ", the same in all rounds of a run."
    )
    return FigureFile(
        "tau",
        "Local steps by round",
        f"{said} More steps a round save rounds; each step is paid for.",
        figure,
    )


def signals(lines: Sequence[RunLines]) -> FigureFile | None:
    """The step of every round over what its noise alone would have: 1 is noise."""
    drawn = {number: ratios for number, line in enumerate(lines) if (ratios := _ratios(line.runs))}
    if not drawn:
        return None
    figure, (axis,) = canvas()
    for number, ratios in drawn.items():
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
    legend(figure, [lines[number].label for number in drawn], axis)
    return FigureFile("signal", "Signal to noise by round", _signal_sentence(lines, drawn), figure)


def _signal_sentence(lines: Sequence[RunLines], drawn: Mapping[int, Mapping[int, float]]) -> str:
    """Of the line with the least signal."""
    medians = {number: float(np.median(list(ratios.values()))) for number, ratios in drawn.items()}
    worst = min(medians, key=lambda number: medians[number])
    signal = math.sqrt(max(0.0, medians[worst] ** 2 - 1))
    whose = f" of {lines[worst].label}" if len(drawn) > 1 else ""
    length = f"{medians[worst]:.3g} times as long as noise alone"
    said = f"In the median round{whose} the step is {length}: signal to noise {signal:.2g}."
    return (
        f"{said} At 1 a round tells nothing by itself, and only the mean of many moves the "
        "model; far above, it learns fast."
    )


def _ratios(runs: Sequence[RunTables]) -> dict[int, float]:
    """By round, where all of the runs have it."""
    found = [
        {step.round: step.norm / step.noise for step in run.steps if step.noise} for run in runs
    ]
    common = set.intersection(*map(set, found)) if found else set()
    return {round: sum(one[round] for one in found) / len(found) for round in sorted(common)}


def updates(run: RunTables) -> FigureFile | None:
    """Single updates where nothing is private: their norms, with the clip, and their angles to the
    last global step.
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
    turned = [(update.round, update.angle) for update in run.single if update.angle is not None]
    places, degrees = [round for round, _ in turned], [degree for _, degree in turned]
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
    whose = (
        "public clients"
        if any(update.whose.startswith("public ") for update in run.single)
        else "clients"
    )
    lengths = [update.norm for update in run.single]
    over = sum(update.norm > 0.999 * update.clip for update in run.single if update.clip)
    cut = f" {over / len(lengths):.0%} reach the clip." if clips else " Nothing is clipped."
    said = (
        f"A point is an update of one of the {whose}: norms {min(lengths):.3g} to "
        f"{max(lengths):.3g}.{cut}"
    )
    how = "Below 90 degrees an update goes on where the last step went, above it back."
    return FigureFile("updates", "Single updates, which nobody hides here", f"{said} {how}", figure)
