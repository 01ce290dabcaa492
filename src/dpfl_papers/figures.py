"""Pictures of tables and figures: ours, and what the paper prints where it prints numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

from dpfl_papers.cells import PaperTable
from dpfl_papers.table_report import FinishedCell, rows_of

OURS, THEIRS = "#1f5fa8", "#c05020"
LETTERS = 11
"""Of a title, that an inch holds."""


def draw(table: PaperTable, made: Sequence[FinishedCell], path: Path) -> None:
    _PICTURES[table.picture](table, made, path)


def _panels(
    made: Sequence[FinishedCell], wide: float, high: float
) -> tuple[Any, list[tuple[Any, str, list[FinishedCell]]]]:
    """One panel a group and column."""
    places = list(dict.fromkeys((one.cell.group, one.cell.column) for one in made))
    across = min(4, len(places))
    down = -(-len(places) // across)
    figure, axes = plt.subplots(
        down, across, figsize=(wide * across, high * down), squeeze=False, layout="constrained"
    )
    found = []
    for axis, place in zip(axes.flat, places, strict=False):
        title = ", ".join(part for part in place if part)
        found.append(
            (axis, title, [one for one in made if (one.cell.group, one.cell.column) == place])
        )
    for axis in axes.flat[len(places) :]:
        axis.set_axis_off()
    return figure, found


def _dots(table: PaperTable, made: Sequence[FinishedCell], path: Path) -> None:
    rows = rows_of(made)[::-1]
    figure, panels = _panels(made, 3.6, 1.2 + 0.27 * len(rows))
    for axis, title, mine in panels:
        for one in mine:
            height = rows.index(one.cell.row)
            if one.cell.printed is not None:
                axis.plot(
                    one.cell.printed, height, "o", mfc="none", color=THEIRS, ms=6, label="paper"
                )
            if one.values:
                axis.plot([min(one.values), max(one.values)], [height] * 2, "-", color=OURS, lw=2)
                axis.plot(one.mean, height, "o", color=OURS, ms=5, label="here")
        axis.set_yticks(range(len(rows)), rows, fontsize=7)
        axis.set_ylim(-0.6, len(rows) - 0.4)
        axis.set_title(title, fontsize=8)
        axis.tick_params(axis="x", labelsize=7)
        axis.grid(axis="x", alpha=0.3)
    _save(figure, table, path)


def _curves(table: PaperTable, made: Sequence[FinishedCell], path: Path) -> None:
    _against_rounds(table, made, path, table.value if "loss" in table.value else "accuracy")


def _steps(table: PaperTable, made: Sequence[FinishedCell], path: Path) -> None:
    _against_rounds(table, made, path, "tau")


def _against_rounds(table: PaperTable, made: Sequence[FinishedCell], path: Path, key: str) -> None:
    """A line a row, of the first seed."""
    figure, panels = _panels(made, 4.0, 2.8)
    for axis, title, mine in panels:
        for one in mine:
            series = one.outcomes[0].series
            pairs = zip(series.get("round", ()), series.get(key, ()), strict=True)
            points = [(x, y) for x, y in pairs if y is not None]
            style = "--" if "published" in one.cell.row else "-"
            axis.plot(
                [x for x, _ in points], [y for _, y in points], style, label=one.cell.row, lw=1.2
            )
        axis.set_title(title, fontsize=8)
        axis.set_xlabel("round", fontsize=7)
        axis.set_ylabel(key, fontsize=7)
        axis.xaxis.get_major_locator().set_params(integer=True)
        if "loss" in key:
            axis.set_yscale("log")
        if key == "tau":
            axis.yaxis.get_major_locator().set_params(integer=True)
        axis.tick_params(labelsize=7, which="both")
        axis.legend(fontsize=6, framealpha=0.5)
        axis.grid(alpha=0.3)
    _save(figure, table, path, legend=False)


def _taus(table: PaperTable, made: Sequence[FinishedCell], path: Path) -> None:
    """Accuracy against tau, a line a column."""
    groups = list(dict.fromkeys(one.cell.group for one in made))
    figure, axes = plt.subplots(
        1, len(groups), figsize=(5 * len(groups), 4), squeeze=False, layout="constrained"
    )
    for axis, group in zip(axes.flat, groups, strict=True):
        for place in dict.fromkeys(
            (one.cell.column, one.cell.work.content["budget"]["epsilon"]) for one in made
        ):
            mine = [
                one
                for one in made
                if one.cell.group == group and one.cell.column == place[0] and one.values
            ]
            mine = [one for one in mine if one.cell.work.content["budget"]["epsilon"] == place[1]]
            axis.plot(
                [tau_of(one) for one in mine],
                [one.mean for one in mine],
                "o-",
                lw=1,
                ms=3,
                label=place[0],
            )
        axis.set_title(group, fontsize=9)
        axis.set_xlabel("tau", fontsize=8)
        axis.legend(fontsize=6)
        axis.grid(alpha=0.3)
    _save(figure, table, path, legend=False)


def _best(table: PaperTable, made: Sequence[FinishedCell], path: Path) -> None:
    """How often each tau is the best of its column, as the paper prints it and here."""
    ratios = list(dict.fromkeys(one.cell.column.rpartition(", ")[0] for one in made))
    figure, axes = plt.subplots(
        1, len(ratios), figsize=(3.2 * len(ratios), 2.8), squeeze=False, layout="constrained"
    )
    taus = sorted({tau_of(one) for one in made})
    for axis, ratio in zip(axes.flat, ratios, strict=True):
        for shift, color, label, pick in (
            (-0.2, THEIRS, "paper", _printed),
            (0.2, OURS, "here", _mean),
        ):
            counts = best_taus(
                [one for one in made if one.cell.column.startswith(f"{ratio},")], pick
            )
            axis.bar(
                [i + shift for i in range(len(taus))],
                [counts.get(tau, 0) for tau in taus],
                0.4,
                color=color,
                label=label,
            )
        axis.set_xticks(range(len(taus)), [str(tau) for tau in taus])
        axis.set_title(ratio, fontsize=9)
    _save(figure, table, path)


def best_taus(
    made: Sequence[FinishedCell], pick: Callable[[FinishedCell], float | None]
) -> dict[int, int]:
    """How many columns each tau is the best of."""
    columns: dict[tuple[str, str, float], list[tuple[float, int]]] = {}
    for one in made:
        place = (one.cell.group, one.cell.column, one.cell.work.content["budget"]["epsilon"])
        value = pick(one)
        if value is not None:
            columns.setdefault(place, []).append((value, tau_of(one)))
    counts: dict[int, int] = {}
    for found in columns.values():
        winner = max(found)[1]
        counts[winner] = counts.get(winner, 0) + 1
    return counts


def tau_of(one: FinishedCell) -> int:
    return int(one.cell.work.content["algorithm"]["tau"])


def _printed(one: FinishedCell) -> float | None:
    return one.cell.printed


def _mean(one: FinishedCell) -> float | None:
    return one.mean if one.values else None


def _updates(table: PaperTable, made: Sequence[FinishedCell], path: Path) -> None:
    """A dot a client: the norm of its update, and the angle to the last global update; the black
    one is the mean of all.
    """
    figure, panels = _panels(made, 3.6, 3.0)
    for axis, title, mine in panels:
        for one in mine:
            series = one.outcomes[0].series
            axis.scatter(series["norm"], series["angle"], s=8, alpha=0.6, label=one.cell.row)
            axis.scatter(
                series["norm of mean"], series["angle of mean"], s=28, color="black", zorder=3
            )
        axis.set_title(title, fontsize=8)
        axis.set_xlabel("norm of the update", fontsize=7)
        axis.set_ylabel("angle, degrees", fontsize=7)
        axis.legend(fontsize=6)
    _save(figure, table, path, legend=False)


def _save(figure: Any, table: PaperTable, path: Path, legend: bool = True) -> None:
    figure.suptitle(fill(table.title, int(LETTERS * figure.get_figwidth())), fontsize=10)
    if legend:
        handles = {
            label: handle
            for axis in figure.axes
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        figure.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=2, fontsize=8
        )
    figure.savefig(path, dpi=110)
    plt.close(figure)


_PICTURES = {
    "dots": _dots,
    "curves": _curves,
    "steps": _steps,
    "taus": _taus,
    "best": _best,
    "updates": _updates,
}
