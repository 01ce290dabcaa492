"""The outcome of a run in words, which terminal, notebook, report and web pages lay out.

It is made from the content of `result.json`, which `Result.to_dict` writes. So a run in memory and
a run on disk read alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpfl.run.metrics import figure

ENDINGS = {
    "rounds": "all rounds were run",
    "epsilon": "the privacy budget is spent",
    "bytes": "the communication budget is spent",
    "seconds": "the time limit was reached",
    "survivors": "too few clients were left for secure sums",
    "unfinished": "it has not finished",
}
"""Why a run ended, by the word in its record."""

PUBLIC_TEST_SET = "on the public test set"


@dataclass(frozen=True)
class OutcomeView:
    """The outcome of a run as sentences and figures."""

    headline: str
    """The name of the first metric."""
    headline_value: str
    """Its value, or "not measured"."""
    headline_interval: str
    """Its 95 % interval, or ""."""
    metrics: str
    """Every metric with its interval; "" if nothing was measured."""
    measured_on: str
    """What the metrics were measured on."""
    rounds: str
    """How many rounds and steps there were, and why the run ended."""
    ending: str
    """Why the run ended, or has not."""
    warnings: tuple[str, ...]
    """Warnings besides those of the privacy statement."""
    lost_replies: str
    """How many replies did not count; "" if all did."""

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> OutcomeView:
        """Puts an outcome into words.

        Args:
            result: What `Result.to_dict` gives or `result.json` holds. It is empty for a run that
                is under way.

        Returns:
            The outcome.
        """
        name = str(result.get("headline") or "accuracy")
        metrics = result.get("metrics", {})
        intervals = result.get("intervals", {})
        value = metrics.get(name, result.get("accuracy"))
        privacy_warnings = result.get("privacy", {}).get("warnings", ())
        return cls(
            headline=name,
            headline_value="not measured" if value is None else metric_text(name, value),
            headline_interval=_interval(name, intervals),
            metrics=metrics_in_words(metrics, intervals),
            measured_on=str(result.get("noisy") or PUBLIC_TEST_SET),
            rounds=_rounds(result),
            ending=ending_in_words(result.get("stopped_by")),
            warnings=tuple(
                str(warning)
                for warning in result.get("warnings", ())
                if warning not in privacy_warnings
            ),
            lost_replies=_lost_in_words(result.get("lost", ())),
        )

    @property
    def measured(self) -> str:
        """The first metric by name and value."""
        return f"{self.headline} {self.headline_value}"


def ending_in_words(stopped_by: str | None) -> str:
    """Says why a run ended.

    Args:
        stopped_by: The word in the run's record; None while it is under way.

    Returns:
        A clause. A word that this version does not know stands for itself.
    """
    word = stopped_by or "unfinished"
    return ENDINGS.get(word, word)


def metric_text(name: str, value: float | None) -> str:
    """Shows the value of a metric without its name.

    Args:
        name: The metric. Accuracy is shown in per cent.
        value: Its value; None if it was not measured.

    Returns:
        The value as text, or "-".
    """
    return figure(name, value).removeprefix(name).strip()


def metrics_in_words(metrics: Mapping[str, float], intervals: Mapping[str, Sequence[float]]) -> str:
    """Lists every metric with its interval where it has one.

    Args:
        metrics: Values by name.
        intervals: Both ends of 95 % intervals by name.

    Returns:
        The list in one line.
    """
    return ", ".join(
        f"{figure(name, value)} ({_interval(name, intervals)})"
        if name in intervals
        else figure(name, value)
        for name, value in metrics.items()
    )


def _interval(name: str, intervals: Mapping[str, Sequence[float]]) -> str:
    if name not in intervals:
        return ""
    low, high = intervals[name]
    return f"{metric_text(name, low)} to {metric_text(name, high)}"


def _rounds(result: Mapping[str, Any]) -> str:
    ending = ending_in_words(result.get("stopped_by"))
    if result.get("rounds") is None:
        return ending
    return (
        f"{result['rounds']:,} rounds with {result.get('iterations', 0):,} steps per client; "
        f"{ending}"
    )


def _lost_in_words(lines: Sequence[object]) -> str:
    if not lines:
        return ""
    replies = "reply was" if len(lines) == 1 else "replies were"
    return f"{len(lines)} {replies} refused or lost. The first: {lines[0]}"
