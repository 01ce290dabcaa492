"""Figures of a comparison: the first metric against rounds and epsilon, and calibration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfl.errors import DpflError
from dpfl.run.metrics import RoundRow, read_rows
from dpfl.run.records.folder import METRICS, RunFolder
from dpfl.views.compare_groups import RunGroup, SeedMean, mean_of

if TYPE_CHECKING:
    from dpfl.views.notebook.figure import NotebookFigure

DASHES = ("-", "--", ":", "-.")
BANDS = 6
"""With more lines than this, bands would hide each other."""

CurvePoint = tuple[int, float | None, SeedMean]
"""A round, the largest epsilon used by then, and the mean of the first metric."""


def draw_groups(groups: Sequence[RunGroup]) -> NotebookFigure:
    """Draws one line per group: the mean over its seeds, with its interval as a band.

    Args:
        groups: Runs that differ only by their seed, by group.

    Returns:
        The first metric against rounds and against the epsilon used.

    Raises:
        DpflError: If the groups have different first metrics.
    """
    metric = shared_metric(groups)
    scale = 100 if metric == "accuracy" else 1
    figure, (by_round, by_epsilon) = _figure(2, len(groups), sharey=True)
    values: list[float] = []
    for group, line in zip(groups, _lines(groups), strict=True):
        points = curve(group)
        if not points:
            continue
        rounds, epsilons, means = zip(*points, strict=True)
        heights = [scale * mean.value for mean in means]
        values += heights
        by_round.plot(rounds, heights, **line)
        if len(groups) <= BANDS and any(mean.half for mean in means):
            low, high = (
                [scale * (mean.value + sign * (mean.half or 0.0)) for mean in means]
                for sign in (-1, 1)
            )
            by_round.fill_between(rounds, low, high, color=line["color"], alpha=0.15, linewidth=0)
        if all(epsilon is not None for epsilon in epsilons):
            by_epsilon.plot(epsilons, heights, **line)
    label = "test accuracy, %" if metric == "accuracy" else f"{metric} on the test set"
    by_round.set(xlabel="round", ylabel=label)
    if values and metric == "accuracy":  # the band of two seeds is wider than the axis
        by_round.set_ylim(max(0.0, min(values) - 10), min(100.0, max(values) + 10))
    by_epsilon.set_xlabel("epsilon used (upper bound)")
    return _with_legend(figure, by_round, (by_round, by_epsilon))


def shared_metric(groups: Sequence[RunGroup]) -> str:
    """Names the first metric of all groups.

    Args:
        groups: Runs by group.

    Returns:
        Its name.

    Raises:
        DpflError: If there are several: they have no common axis.
    """
    names = sorted({group.figure.name for group in groups if group.figure})
    if len(names) > 1:
        raise DpflError(
            f"These runs are measured by {' and '.join(names)}, which have no common axis. Draw "
            "them separately."
        )
    return names[0] if names else "accuracy"


def draw_calibration(groups: Sequence[RunGroup]) -> NotebookFigure:
    """Draws the share of positives against the predicted probability, one line per run.

    Args:
        groups: Runs by group, of the task `binary` or `classes`.

    Returns:
        The figure. A calibrated model lies on the diagonal.

    Raises:
        DpflError: If no run has predicted probabilities of a public test set.
    """
    figure, axes = _figure(1, len(groups))
    axis = axes[0]
    axis.plot([0, 1], [0, 1], color="grey", linewidth=1, linestyle=":")
    is_empty = True
    for group, line in zip(groups, _lines(groups), strict=True):
        for number, run in enumerate(group.runs):
            points = _calibration(RunFolder(Path(run["run"])))
            if points:
                predictions, observations, _ = zip(*points, strict=True)
                axis.plot(predictions, observations, **(line | ({"label": None} if number else {})))
                is_empty = False
    if is_empty:
        raise DpflError(
            "None of these runs has predicted probabilities of a public test set. They need the "
            "task binary or classes."
        )
    labels = {"xlabel": "predicted probability", "ylabel": "observed share of the test set"}
    axis.set(**labels, xlim=(0, 1), ylim=(0, 1))
    return _with_legend(figure, axis, axes)


def curve(group: RunGroup) -> list[CurvePoint]:
    """Reads the curve of a group at the rounds that all of its runs evaluated.

    Args:
        group: Runs that differ only by their seed.

    Returns:
        One point per round.
    """
    by_run = [rows for run in group.runs if (rows := _rows_with_metric(Path(run["run"])))]
    if not by_run:
        return []
    points = []
    for round in sorted(set.intersection(*map(set, by_run))):
        same_round = [rows[round] for rows in by_run]
        epsilons = [row.epsilon for row in same_round if row.epsilon is not None]
        mean = mean_of([row.measured or 0.0 for row in same_round])
        assert mean is not None
        points.append((round, max(epsilons, default=None), mean))
    return points


def colours(count: int) -> list[Any]:
    """Chooses colours for lines.

    Args:
        count: The number of lines.

    Returns:
        As many colours, all different up to twenty. Beyond that, dashes tell lines apart.
    """
    from matplotlib import colormaps

    palette = colormaps["tab10" if count <= 10 else "tab20"]
    return [palette(number % palette.N) for number in range(count)]


def _rows_with_metric(run: Path) -> dict[int, RoundRow]:
    rows = read_rows(RunFolder(run).file(METRICS))
    return {row.round: row for row in rows if row.measured is not None}


def _calibration(folder: RunFolder) -> list[tuple[float, float, int]]:
    points = (folder.json("result.json") or {}).get("calibration")
    if not isinstance(points, list) or not all(
        isinstance(point, list) and len(point) == 3 for point in points
    ):
        return []
    return [(float(mean), float(share), int(count)) for mean, share, count in points]


def _figure(axes: int, groups: int, **options: Any) -> tuple[NotebookFigure, Any]:
    from dpfl.views.notebook.figure import NotebookFigure

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


def _with_legend(figure: NotebookFigure, labelled_axis: Any, axes: Sequence[Any]) -> NotebookFigure:
    for axis in axes:
        axis.grid(alpha=0.3)
    handles, names = labelled_axis.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right center", fontsize="small")
    return figure
