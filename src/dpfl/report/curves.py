"""Groups of runs as curves: accuracy against rounds and against epsilon."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpfl.report.compare import Group, mean_of
from dpfl.run.folder import METRICS, RunFolder
from dpfl.run.metrics import read_rows

DASHES = ("-", "--", ":", "-.")
BANDS = 6
"""Of more lines than this the bands would hide each other."""


def draw_groups(groups: Sequence[Group], path: Path) -> None:
    """A line a group, the mean over its seeds, with its interval as a band."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, max(4.0, 0.24 * len(groups))), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    shown: list[float] = []
    for number, (group, colour) in enumerate(zip(groups, colours(len(groups)), strict=True)):
        line = {"color": colour, "linestyle": DASHES[number // 20 % len(DASHES)], "marker": ".", "label": group.label}
        points = curve(group)
        if not points:
            continue
        rounds, epsilons, means = zip(*points, strict=True)
        left.plot(rounds, [100 * mean.value for mean in means], **line)
        shown += [100 * mean.value for mean in means]
        if len(groups) <= BANDS and any(mean.half for mean in means):
            ends = [[100 * (mean.value + sign * (mean.half or 0.0)) for mean in means] for sign in (-1, 1)]
            left.fill_between(rounds, *ends, color=colour, alpha=0.15, linewidth=0)
        if all(epsilon is not None for epsilon in epsilons):
            right.plot(epsilons, [100 * mean.value for mean in means], **line)
    left.set(xlabel="round", ylabel="test accuracy, %")
    if shown:  # a band of two seeds is wider than the picture
        left.set_ylim(max(0.0, min(shown) - 10), min(100.0, max(shown) + 10))
    right.set_xlabel("epsilon used (upper bound)")
    for axis in (left, right):
        axis.grid(alpha=0.3)
    figure.legend(*left.get_legend_handles_labels(), loc="outside right center", fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def curve(group: Group) -> list[tuple[int, float | None, Any]]:
    """Round, the largest epsilon by then, and the mean accuracy, at the rounds that all runs of the group evaluated."""
    runs = [
        {row.round: row for row in read_rows(RunFolder(Path(run["run"])).file(METRICS)) if row.accuracy is not None}
        for run in group.runs
    ]
    runs = [rows for rows in runs if rows]
    if not runs:
        return []
    points = []
    for round in sorted(set.intersection(*map(set, runs))):
        rows = [run[round] for run in runs]
        spent = [row.epsilon for row in rows if row.epsilon is not None]
        points.append((round, max(spent, default=None), mean_of([row.accuracy or 0.0 for row in rows])))
    return points


def colours(count: int) -> list[Any]:
    """As many as there are lines, and no two alike up to twenty; from then on dashes tell them apart, too."""
    from matplotlib import colormaps

    palette = colormaps["tab10" if count <= 10 else "tab20"]
    return [palette(number % palette.N) for number in range(count)]
