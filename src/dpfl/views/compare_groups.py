"""Groups of runs that differ only by their seed, each with its mean and the interval of it.

`group_runs` is pure: summaries in, groups out. Tables, figures and JSON are made of groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from dpfl.lazy_import import special

CONFIDENCE = 0.95
SHOWN_SETTINGS = 6


@dataclass(frozen=True)
class SeedMean:
    """The mean of a metric over seeds."""

    value: float
    half: float | None
    """Half of Student's interval for the mean; None for a single seed."""
    count: int
    """How many different models the mean is over."""
    name: str = "accuracy"
    """The metric."""

    @property
    def text(self) -> str:
        """The mean with ± half of its interval; the name too, unless it is accuracy."""
        if self.name != "accuracy":
            half = "" if self.half is None else f" ± {self.half:.4f}"
            return f"{self.name} {self.value:.4f}{half}"
        if self.half is None:
            return f"{self.value:.2%}"
        return f"{100 * self.value:.2f} ± {100 * self.half:.2f} %"

    def to_dict(self) -> dict[str, Any]:
        """Writes the mean as `dpfl compare --json` prints it.

        Returns:
            The mean, both ends of its interval (None for one seed), and the number of runs.
        """
        low = high = None
        if self.half is not None:
            low, high = self.value - self.half, self.value + self.half
        return {
            "mean": self.value,
            "low": low,
            "high": high,
            "confidence": CONFIDENCE,
            "runs": self.count,
        }


def mean_of(values: Sequence[float], name: str = "accuracy") -> SeedMean | None:
    """Takes the mean over seeds with its 95 % interval by Student's t.

    The half-width is t * s / sqrt(n), with t the quantile for n - 1 degrees of freedom.

    Args:
        values: One value per seed.
        name: The metric.

    Returns:
        The mean; None without values.
    """
    if not values:
        return None
    count = len(values)
    if count == 1:
        return SeedMean(values[0], None, 1, name)
    quantile = float(special.stdtrit(count - 1, (1 + CONFIDENCE) / 2))
    return SeedMean(fmean(values), quantile * stdev(values) / math.sqrt(count), count, name)


@dataclass(frozen=True)
class RunGroup:
    """Runs with the same settings."""

    label: str
    """The settings that tell this group from the others."""
    settings: Mapping[str, Any]
    runs: tuple[Mapping[str, Any], ...]
    """What `run_summary.summary` gives, in the order of their seeds."""

    @property
    def accuracy(self) -> SeedMean | None:
        """The mean accuracy over different models. Two runs with the same model count once."""
        values = {
            run["model_sha256"]: run["accuracy"] for run in self.runs if run["accuracy"] is not None
        }
        return mean_of(list(values.values()))

    @property
    def figure(self) -> SeedMean | None:
        """The mean of the first metric of the task."""
        name = next((run["headline"] for run in self.runs if run.get("headline")), "accuracy")
        if name == "accuracy" and not self.noisy:
            return self.accuracy
        values = {
            run["model_sha256"]: run["figure"] for run in self.runs if run.get("figure") is not None
        }
        return mean_of(list(values.values()), name)

    @property
    def noisy(self) -> bool:
        """Whether clients answered for the metric, with noise in their answers."""
        return any(run.get("noisy") for run in self.runs)

    @property
    def worst(self) -> Mapping[str, Any]:
        """The run with the largest proven epsilon. That epsilon is the group's."""
        return max(self.runs, key=lambda run: _size(run["proven"]))

    def to_dict(self) -> dict[str, Any]:
        """Writes the group as `dpfl compare --json` prints it.

        Returns:
            Label, seeds, means, the guarantee, the settings and the runs.
        """
        accuracy, figure = self.accuracy, self.figure
        guarantee = {
            name: self.worst[name] for name in ("unit", "delta", "accountant", "proven", "claimed")
        }
        return {
            "label": self.label,
            "seeds": [run["seed"] for run in self.runs],
            "accuracy": accuracy.to_dict() if accuracy else None,
            "headline": figure.to_dict() | {"name": figure.name} if figure else None,
            **guarantee,
            "settings": dict(self.settings),
            "runs": [dict(run) for run in self.runs],
        }


def group_runs(summaries: Iterable[Mapping[str, Any]]) -> list[RunGroup]:
    """Groups runs by everything except their seed.

    Args:
        summaries: What `run_summary.summary` gives.

    Returns:
        Groups in the order of their first runs, each with a label that tells it from the others.
    """
    by_settings: dict[str, list[Mapping[str, Any]]] = {}
    for run in summaries:
        key = repr(sorted(_flat(run["settings"]).items()))
        by_settings.setdefault(key, []).append(run)
    flat = [_flat(runs[0]["settings"]) for runs in by_settings.values()]
    names = [str(runs[0]["algorithm"]) for runs in by_settings.values()]
    groups = []
    for own, name, runs in zip(flat, names, by_settings.values(), strict=True):
        same_system = [other for other, system in zip(flat, names, strict=True) if system == name]
        by_seed = sorted(runs, key=lambda run: run["seed"] if isinstance(run["seed"], int) else 0)
        label = _label(name, own, same_system, flat)
        groups.append(RunGroup(label, runs[0]["settings"], tuple(by_seed)))
    return groups


def _flat(value: Any, place: str = "") -> dict[str, Any]:
    """Lists settings by dotted names, including those inside parts and lists."""
    if isinstance(value, Mapping):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    else:
        return {place: value}
    flat: dict[str, Any] = {}
    for key, item in items:
        flat |= _flat(item, f"{place}.{key}" if place else str(key))
    return flat


def _label(
    name: str,
    own: Mapping[str, Any],
    same_system: Sequence[Mapping[str, Any]],
    every: Sequence[Mapping[str, Any]],
) -> str:
    """Writes the system, then options in which it differs from other groups of the same system,
    then settings in which it differs from any group.
    """
    parts = [key for key in own if key.startswith("algorithm.") and _differs(key, same_system)]
    rest = [key for key in own if not key.startswith("algorithm.") and _differs(key, every)]
    texts = [f"{key.rpartition('.')[2]} {_short(own[key])}" for key in (*parts, *rest)]
    more = f", {len(texts) - SHOWN_SETTINGS} more" if len(texts) > SHOWN_SETTINGS else ""
    return ", ".join([name, *texts[:SHOWN_SETTINGS]]) + more


def _differs(key: str, settings: Sequence[Mapping[str, Any]]) -> bool:
    return len({repr(group_settings.get(key)) for group_settings in settings}) > 1


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)[:32]


def _size(proven: Any) -> float:
    """Orders epsilons: an unfinished run comes first, and a run without a guarantee comes last."""
    if proven is None:
        return -1.0
    return proven if isinstance(proven, float) else math.inf
