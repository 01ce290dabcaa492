"""Captions of curves: what to see in them, and which comparison is fair.

The figures of a report and the charts of the web page that compares runs share them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dpfl.privacy.figures import rounded_up
from dpfl.run.metrics import LESS_IS_BETTER, figure
from dpfl.views.run_lines import LinePoint, RunLines

HORIZONTAL_AXES = ("rounds", "epsilon", "bytes", "loss")
"""What a comparison draws: the first metric against three quantities, and the loss by round."""

MIXED_METRIC = "each task's own metric"
"""The name of the axis if runs have different first metrics."""


def metric_of(lines: Sequence[RunLines]) -> str:
    """Names the first metric that lines share.

    Args:
        lines: The lines of one figure.

    Returns:
        The metric, or "each task's own metric".
    """
    names = {run.headline for line in lines for run in line.runs}
    return names.pop() if len(names) == 1 else MIXED_METRIC


def metric_sentence(lines: Sequence[RunLines], against: str, metric: str) -> str:
    """Says how the first metric ends, and what to conclude from it.

    Args:
        lines: The lines of the figure.
        against: "rounds", "epsilon" or "bytes".
        metric: The first metric, or "each task's own metric".

    Returns:
        One to three sentences.
    """
    ends = _ends(lines, against, "headline")
    if not ends:
        return "Only the loss was measured: the task has no metric, or there is no public test set."
    less = metric in LESS_IS_BETTER
    if len(ends) == 1:
        end = next(iter(ends.values()))
        place = {
            "rounds": f"round {end.x:.0f}",
            "epsilon": f"epsilon {rounded_up(end.x):.4f}",
            "bytes": f"{end.x * 1e-6:.3g} MB",
        }[against]
        return (
            f"The run ends with {figure(metric, end.y)} at {place}. If the curve is still "
            f"{'falling' if less else 'rising'} there, a larger budget would help."
        )
    if metric == MIXED_METRIC:
        return f"The tasks have different metrics, so lines cannot be compared.{_bands(ends)}"
    best = _best(ends, less)
    return (
        f"{best} ends {'lowest' if less else 'highest'}, with {figure(metric, ends[best].y)}. "
        f"{_fair(against, less)}{_bands(ends)}"
    )


def compared_sentence(lines: Sequence[RunLines], against: str) -> str:
    """Says what a chart of the comparison page shows.

    Args:
        lines: The lines of the chart.
        against: One of `HORIZONTAL_AXES`.

    Returns:
        One to three sentences.
    """
    if against != "loss":
        return metric_sentence(lines, against, metric_of(lines))
    ends = _ends(lines, "rounds", "loss")
    if not ends:
        return "No loss was measured."
    best = f"{_best(ends, less=True)} ends lowest. " if len(ends) > 1 else ""
    return f"{best}Lower is better.{_bands(ends)}"


def _ends(lines: Sequence[RunLines], x: str, y: str) -> dict[str, LinePoint]:
    return {line.label: points[-1] for line in lines if (points := line.points(x, y))}


def _best(ends: Mapping[str, LinePoint], less: bool) -> str:
    return (min if less else max)(ends, key=lambda label: ends[label].y)


def _fair(against: str, less: bool) -> str:
    side = "lower" if less else "higher"
    return {
        "rounds": "Compare at equal rounds; the privacy of the lines may differ.",
        "epsilon": f"At equal epsilon the {side} line is the better trade. Only this comparison is "
        "fair.",
        "bytes": f"At equal bytes the {side} line makes better use of the network.",
    }[against]


def _bands(ends: Mapping[str, LinePoint]) -> str:
    if not any(point.half for point in ends.values()):
        return ""
    return " Bands are 95 % intervals of the mean over seeds; with few seeds they are wide."
