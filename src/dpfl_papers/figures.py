"""Pictures of tables and figures: our numbers, and those of the paper where it prints any."""

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
LETTERS_PER_INCH = 11
"""Of a title, that an inch holds."""


def draw(table: PaperTable, results: Sequence[FinishedCell], path: Path) -> None:
    """Draws the picture of a table.

    Args:
        table: The table, whose `picture` names the kind of picture.
        results: Its finished cells.
        path: The PNG file to write.
    """
    _PICTURES[table.picture](table, results, path)


def _panels(
    results: Sequence[FinishedCell], wide: float, high: float
) -> tuple[Any, list[tuple[Any, str, list[FinishedCell]]]]:
    """Returns a figure with one panel per group and column."""
    places = list(dict.fromkeys((result.cell.group, result.cell.column) for result in results))
    across = min(4, len(places))
    down = -(-len(places) // across)
    figure, axes = plt.subplots(
        down, across, figsize=(wide * across, high * down), squeeze=False, layout="constrained"
    )
    panels = []
    for axis, place in zip(axes.flat, places, strict=False):
        title = ", ".join(part for part in place if part)
        panels.append(
            (
                axis,
                title,
                [result for result in results if (result.cell.group, result.cell.column) == place],
            )
        )
    for axis in axes.flat[len(places) :]:
        axis.set_axis_off()
    return figure, panels


def _dots(table: PaperTable, results: Sequence[FinishedCell], path: Path) -> None:
    rows = rows_of(results)[::-1]
    figure, panels = _panels(results, 3.6, 1.2 + 0.27 * len(rows))
    for axis, title, mine in panels:
        for result in mine:
            height = rows.index(result.cell.row)
            if result.cell.printed is not None:
                axis.plot(
                    result.cell.printed, height, "o", mfc="none", color=THEIRS, ms=6, label="paper"
                )
            if result.values:
                axis.plot(
                    [min(result.values), max(result.values)], [height] * 2, "-", color=OURS, lw=2
                )
                axis.plot(result.mean, height, "o", color=OURS, ms=5, label="here")
        axis.set_yticks(range(len(rows)), rows, fontsize=7)
        axis.set_ylim(-0.6, len(rows) - 0.4)
        axis.set_title(title, fontsize=8)
        axis.tick_params(axis="x", labelsize=7)
        axis.grid(axis="x", alpha=0.3)
    _save(figure, table, path)


def _curves(table: PaperTable, results: Sequence[FinishedCell], path: Path) -> None:
    _against_rounds(table, results, path, table.value if "loss" in table.value else "accuracy")


def _steps(table: PaperTable, results: Sequence[FinishedCell], path: Path) -> None:
    _against_rounds(table, results, path, "tau")


def _against_rounds(
    table: PaperTable, results: Sequence[FinishedCell], path: Path, key: str
) -> None:
    """Draws a line per row over the rounds of the first seed."""
    figure, panels = _panels(results, 4.0, 2.8)
    for axis, title, mine in panels:
        for result in mine:
            series = result.outcomes[0].series
            pairs = zip(series.get("round", ()), series.get(key, ()), strict=True)
            points = [(x, y) for x, y in pairs if y is not None]
            style = "--" if "published" in result.cell.row else "-"
            axis.plot(
                [x for x, _ in points], [y for _, y in points], style, label=result.cell.row, lw=1.2
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


def _taus(table: PaperTable, results: Sequence[FinishedCell], path: Path) -> None:
    """Draws accuracy against tau, with a line per column."""
    groups = list(dict.fromkeys(result.cell.group for result in results))
    figure, axes = plt.subplots(
        1, len(groups), figsize=(5 * len(groups), 4), squeeze=False, layout="constrained"
    )
    for axis, group in zip(axes.flat, groups, strict=True):
        for place in dict.fromkeys(
            (result.cell.column, result.cell.work.content["budget"]["epsilon"])
            for result in results
        ):
            mine = [
                result
                for result in results
                if result.cell.group == group and result.cell.column == place[0] and result.values
            ]
            mine = [
                result
                for result in mine
                if result.cell.work.content["budget"]["epsilon"] == place[1]
            ]
            axis.plot(
                [tau_of(result) for result in mine],
                [result.mean for result in mine],
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


def _best(table: PaperTable, results: Sequence[FinishedCell], path: Path) -> None:
    """Draws how often each tau is the best of its column, in the paper and here."""
    ratios = list(dict.fromkeys(result.cell.column.rpartition(", ")[0] for result in results))
    figure, axes = plt.subplots(
        1, len(ratios), figsize=(3.2 * len(ratios), 2.8), squeeze=False, layout="constrained"
    )
    taus = sorted({tau_of(result) for result in results})
    for axis, ratio in zip(axes.flat, ratios, strict=True):
        for shift, color, label, pick in (
            (-0.2, THEIRS, "paper", _printed_number),
            (0.2, OURS, "here", _mean),
        ):
            counts = best_taus(
                [result for result in results if result.cell.column.startswith(f"{ratio},")], pick
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
    results: Sequence[FinishedCell], pick: Callable[[FinishedCell], float | None]
) -> dict[int, int]:
    """Counts the columns in which each tau is the best.

    Args:
        results: Finished cells with a fixed tau.
        pick: The number to compare, or None for a cell that has none.

    Returns:
        The count of each tau that is the best at least once.
    """
    columns: dict[tuple[str, str, float], list[tuple[float, int]]] = {}
    for result in results:
        place = (
            result.cell.group,
            result.cell.column,
            result.cell.work.content["budget"]["epsilon"],
        )
        value = pick(result)
        if value is not None:
            columns.setdefault(place, []).append((value, tau_of(result)))
    counts: dict[int, int] = {}
    for choices in columns.values():
        winner = max(choices)[1]
        counts[winner] = counts.get(winner, 0) + 1
    return counts


def tau_of(result: FinishedCell) -> int:
    """Reads the tau of a cell.

    Args:
        result: A finished cell with a fixed tau.

    Returns:
        Its local steps per round.
    """
    return int(result.cell.work.content["algorithm"]["tau"])


def _printed_number(result: FinishedCell) -> float | None:
    return result.cell.printed


def _mean(result: FinishedCell) -> float | None:
    return result.mean if result.values else None


def _updates(table: PaperTable, results: Sequence[FinishedCell], path: Path) -> None:
    """Draws a dot per client: the norm of its update, and the angle to the last global update.

    The black dot is the mean of all updates.
    """
    figure, panels = _panels(results, 3.6, 3.0)
    for axis, title, mine in panels:
        for result in mine:
            series = result.outcomes[0].series
            axis.scatter(series["norm"], series["angle"], s=8, alpha=0.6, label=result.cell.row)
            axis.scatter(
                series["norm of mean"], series["angle of mean"], s=28, color="black", zorder=3
            )
        axis.set_title(title, fontsize=8)
        axis.set_xlabel("norm of the update", fontsize=7)
        axis.set_ylabel("angle, degrees", fontsize=7)
        axis.legend(fontsize=6)
    _save(figure, table, path, legend=False)


def _save(figure: Any, table: PaperTable, path: Path, legend: bool = True) -> None:
    figure.suptitle(fill(table.title, int(LETTERS_PER_INCH * figure.get_figwidth())), fontsize=10)
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
