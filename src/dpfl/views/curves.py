"""Groups of runs as curves: the headline of their task against rounds and epsilon, and chances
against what was so.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfl.errors import DpflError
from dpfl.run.folder import METRICS, RunFolder
from dpfl.run.metrics import read_rows
from dpfl.views.compare_groups import RunGroup, mean_of

if TYPE_CHECKING:
    from dpfl.views.notebook import NotebookFigure

DASHES = ("-", "--", ":", "-.")
BANDS = 6
"""Of more lines than this the bands would hide each other."""


def draw_groups(groups: Sequence[RunGroup]) -> NotebookFigure:
    """A line a group, the mean over its seeds, with its interval as a band."""
    name, unit = headline(groups), 100 if headline(groups) == "accuracy" else 1
    figure, (left, right) = _figure(2, len(groups), sharey=True)
    shown: list[float] = []
    for group, line in zip(groups, _lines(groups), strict=True):
        points = curve(group)
        if not points:
            continue
        rounds, epsilons, means = zip(*points, strict=True)
        left.plot(rounds, [unit * mean.value for mean in means], **line)
        shown += [unit * mean.value for mean in means]
        if len(groups) <= BANDS and any(mean.half for mean in means):
            ends = [
                [unit * (mean.value + sign * (mean.half or 0.0)) for mean in means]
                for sign in (-1, 1)
            ]
            left.fill_between(rounds, *ends, color=line["color"], alpha=0.15, linewidth=0)
        if all(epsilon is not None for epsilon in epsilons):
            right.plot(epsilons, [unit * mean.value for mean in means], **line)
    left.set(
        xlabel="round",
        ylabel="test accuracy, %" if name == "accuracy" else f"{name} on the test set",
    )
    if shown and name == "accuracy":  # a band of two seeds is wider than the picture
        left.set_ylim(max(0.0, min(shown) - 10), min(100.0, max(shown) + 10))
    right.set_xlabel("epsilon used (upper bound)")
    return _finished(figure, left, (left, right))


def headline(groups: Sequence[RunGroup]) -> str:
    """The metric that all of them are measured by; figures of two have no common axis."""
    names = sorted({group.figure.name for group in groups if group.figure})
    if len(names) > 1:
        raise DpflError(
            f"These runs are measured by {' and '.join(names)}, which no axis has both of: draw "
            "them apart."
        )
    return names[0] if names else "accuracy"


def draw_calibration(groups: Sequence[RunGroup]) -> NotebookFigure:
    """A line a run: in each bin of chances what was said against what was so; on the diagonal they
    are the same.
    """
    figure, axes = _figure(1, len(groups))
    axis = axes[0]
    axis.plot([0, 1], [0, 1], color="grey", linewidth=1, linestyle=":")
    drawn = 0
    for group, line in zip(groups, _lines(groups), strict=True):
        for number, run in enumerate(group.runs):
            points = _calibration(RunFolder(Path(run["run"])))
            if points:
                said, was, _ = zip(*points, strict=True)
                axis.plot(said, was, **(line | ({"label": None} if number else {})))
                drawn += 1
    if not drawn:
        raise DpflError(
            "None of these runs has chances of a public test set to draw: they need the task "
            "binary or classes."
        )
    axis.set(
        xlabel="chance that was said",
        ylabel="share of the test set that was so",
        xlim=(0, 1),
        ylim=(0, 1),
    )
    return _finished(figure, axis, axes)


def _calibration(folder: RunFolder) -> list[tuple[float, float, int]]:
    held = (folder.json("result.json") or {}).get("calibration")
    if not isinstance(held, list) or not all(
        isinstance(point, list) and len(point) == 3 for point in held
    ):
        return []
    return [(float(said), float(was), int(count)) for said, was, count in held]


def _figure(axes: int, groups: int, **options: Any) -> tuple[NotebookFigure, Any]:
    from dpfl.views.notebook import NotebookFigure

    figure = NotebookFigure(7 + 3 * axes, max(4.0, 0.24 * groups))
    return figure, figure.subplots(1, axes, squeeze=False, **options)[0]


def _lines(groups: Sequence[RunGroup]) -> list[dict[str, Any]]:
    return [
        {
            "color": colour,
            "linestyle": DASHES[number // 20 % len(DASHES)],
            "marker": ".",
            "label": group.label,
        }
        for number, (group, colour) in enumerate(zip(groups, colours(len(groups)), strict=True))
    ]


def _finished(figure: NotebookFigure, named: Any, axes: Sequence[Any]) -> NotebookFigure:
    for axis in axes:
        axis.grid(alpha=0.3)
    figure.legend(*named.get_legend_handles_labels(), loc="outside right center", fontsize="small")
    return figure


def curve(group: RunGroup) -> list[tuple[int, float | None, Any]]:
    """Round, the largest epsilon by then, and the mean headline, at the rounds that all runs of the
    group evaluated.
    """
    runs = [
        {
            row.round: row
            for row in read_rows(RunFolder(Path(run["run"])).file(METRICS))
            if row.measured is not None
        }
        for run in group.runs
    ]
    runs = [rows for rows in runs if rows]
    if not runs:
        return []
    points = []
    for round in sorted(set.intersection(*map(set, runs))):
        rows = [run[round] for run in runs]
        spent = [row.epsilon for row in rows if row.epsilon is not None]
        points.append(
            (round, max(spent, default=None), mean_of([row.measured or 0.0 for row in rows]))
        )
    return points


def colours(count: int) -> list[Any]:
    """As many as there are lines, and no two alike up to twenty; from then on dashes tell them
    apart, too.
    """
    from matplotlib import colormaps

    palette = colormaps["tab10" if count <= 10 else "tab20"]
    return [palette(number % palette.N) for number in range(count)]
