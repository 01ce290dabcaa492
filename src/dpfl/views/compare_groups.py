"""Runs side by side: grouped by everything but the seed, each group with its mean and what the
seeds leave open.

`grouped` is pure: summaries in, groups out. Tables, pictures and JSON are made of groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from rich import box
from rich.table import Table

from dpfl.lazy_import import special
from dpfl.privacy.statement import rounded_up
from dpfl.views.terminal import guarantee, measured_by, word

CONFIDENCE = 0.95
SHOWN_SETTINGS = 6
ALIKE = 0.01
"""Epsilons that differ by less than this share are equal for a comparison."""


@dataclass(frozen=True)
class SeedMean:
    """Of so many seeds, with the half of Student's interval for the mean; one seed has none."""

    value: float
    half: float | None
    count: int
    name: str = "accuracy"

    @property
    def text(self) -> str:
        if self.name != "accuracy":
            return f"{self.name} {self.value:.4f}" + (
                "" if self.half is None else f" ± {self.half:.4f}"
            )
        return (
            f"{self.value:.2%}"
            if self.half is None
            else f"{100 * self.value:.2f} ± {100 * self.half:.2f} %"
        )

    def to_dict(self) -> dict[str, Any]:
        ends = (
            (None, None) if self.half is None else (self.value - self.half, self.value + self.half)
        )
        return {
            "mean": self.value,
            "low": ends[0],
            "high": ends[1],
            "confidence": CONFIDENCE,
            "runs": self.count,
        }


def mean_of(values: Sequence[float], name: str = "accuracy") -> SeedMean | None:
    if not values:
        return None
    count = len(values)
    if count == 1:
        return SeedMean(values[0], None, 1, name)
    quantile = float(special.stdtrit(count - 1, (1 + CONFIDENCE) / 2))
    return SeedMean(fmean(values), quantile * stdev(values) / math.sqrt(count), count, name)


@dataclass(frozen=True)
class RunGroup:
    """Runs with the same settings; the label has those that tell it from the other groups."""

    label: str
    settings: Mapping[str, Any]
    runs: tuple[Mapping[str, Any], ...]

    @property
    def accuracy(self) -> SeedMean | None:
        """Over the models that were made: the same one twice is one."""
        made = {
            run["model_sha256"]: run["accuracy"] for run in self.runs if run["accuracy"] is not None
        }
        return mean_of(list(made.values()))

    @property
    def figure(self) -> SeedMean | None:
        """The headline of the task, where that is another than accuracy."""
        name = next((run["headline"] for run in self.runs if run.get("headline")), "accuracy")
        if name == "accuracy" and not self.noisy:
            return self.accuracy
        made = {
            run["model_sha256"]: run["figure"] for run in self.runs if run.get("figure") is not None
        }
        return mean_of(list(made.values()), name)

    @property
    def noisy(self) -> bool:
        """Whether clients were asked for it, who answer with noise."""
        return any(run.get("noisy") for run in self.runs)

    @property
    def worst(self) -> Mapping[str, Any]:
        """The run with the largest proven epsilon, which is that of the group."""
        return max(self.runs, key=lambda run: _size(run["proven"]))

    def to_dict(self) -> dict[str, Any]:
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
    """In the order in which their first runs are given."""
    together: dict[str, list[Mapping[str, Any]]] = {}
    for run in summaries:
        together.setdefault(repr(sorted(_flat(run["settings"]).items())), []).append(run)
    flat = [_flat(runs[0]["settings"]) for runs in together.values()]
    names = [str(runs[0]["algorithm"]) for runs in together.values()]
    groups = []
    for own, name, runs in zip(flat, names, together.values(), strict=True):
        alike = [other for other, called in zip(flat, names, strict=True) if called == name]
        seeds = sorted(runs, key=lambda run: run["seed"] if isinstance(run["seed"], int) else 0)
        groups.append(RunGroup(_label(name, own, alike, flat), runs[0]["settings"], tuple(seeds)))
    return groups


def _flat(value: Any, place: str = "") -> dict[str, Any]:
    """Settings by dotted names; parts and lists are opened."""
    items = (
        value.items()
        if isinstance(value, Mapping)
        else enumerate(value)
        if isinstance(value, list)
        else None
    )
    if items is None:
        return {place: value}
    return {
        name: inner
        for key, item in items
        for name, inner in _flat(item, f"{place}.{key}" if place else str(key)).items()
    }


def _label(
    name: str,
    own: Mapping[str, Any],
    alike: Sequence[Mapping[str, Any]],
    every: Sequence[Mapping[str, Any]],
) -> str:
    """The system, then its options where the same system comes with others, then what is not the
    same for all.
    """
    parts = [key for key in own if key.startswith("algorithm.") and _differs(key, alike)]
    rest = [key for key in own if not key.startswith("algorithm.") and _differs(key, every)]
    told = [f"{key.rpartition('.')[2]} {_short(own[key])}" for key in (*parts, *rest)]
    more = f", {len(told) - SHOWN_SETTINGS} more" if len(told) > SHOWN_SETTINGS else ""
    return ", ".join([name, *told[:SHOWN_SETTINGS]]) + more


def _differs(key: str, settings: Sequence[Mapping[str, Any]]) -> bool:
    return len({repr(one.get(key)) for one in settings}) > 1


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)[:12]


def _size(proven: Any) -> float:
    """What is not proven at all is the most; a run under way has nothing yet."""
    return proven if isinstance(proven, float) else -1.0 if proven is None else math.inf


def table(groups: Sequence[RunGroup]) -> Table:
    """A row a group: over how many seeds, the headline with its interval, the largest epsilon that
    is proven.
    """
    out = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False, caption_justify="left")
    out.add_column("system and what differs", overflow="fold", min_width=18)
    heading = measured_by({group.figure.name for group in groups if group.figure} or {"accuracy"})
    for name in ("seeds", "rounds", heading, "epsilon proven", "ended by"):
        out.add_column(
            name, no_wrap=True, justify="right" if name in ("seeds", "rounds", heading) else "left"
        )
    for group in groups:
        accuracy = group.figure
        seeds = (
            str(len(group.runs))
            if accuracy and accuracy.count == len(group.runs)
            else _unfinished(group)
        )
        rounds, ended = (
            _each(run[name] for run in group.runs) for name in ("rounds", "stopped_by")
        )
        named = (
            f"{accuracy.name} {accuracy.text.removeprefix(accuracy.name).strip()}"
            if accuracy
            else "-"
        )
        measured = named.removeprefix(heading).strip()
        out.add_row(group.label, seeds, rounds, measured, guarantee(group.worst), ended)
    out.caption = " ".join(notes(groups))
    return out


def _unfinished(group: RunGroup) -> str:
    return f"{group.figure.count if group.figure else 0} of {len(group.runs)}"


def _each(values: Iterable[Any]) -> str:
    """One value, a range of numbers, or the words one under another."""
    found = sorted(
        {value for value in values if value is not None},
        key=lambda value: (str(type(value)), value),
    )
    if len(found) > 1 and all(isinstance(value, int) for value in found):
        return f"{found[0]}-{found[-1]}"
    return "\n".join(map(word, found)) or "-"


def notes(groups: Sequence[RunGroup]) -> list[str]:
    """How to read the table: what ± is, and whether its rows may be compared at all."""
    said = []
    if any(group.figure and group.figure.half is not None for group in groups):
        said.append(f"± is the {CONFIDENCE:.0%} interval of the mean over seeds (Student's t).")
    if any(group.noisy for group in groups):
        said.append("What clients were asked for has noise in it beside that of the seeds.")
    proven = [group.worst["proven"] for group in groups]
    if len({group.worst["unit"] for group in groups} - {"none", None}) > 1:
        said.append("Units differ: epsilons of samples and of clients cannot be compared.")
    figures = [epsilon for epsilon in proven if isinstance(epsilon, float)]
    if figures and (len(figures) < len(proven) or max(figures) > (1 + ALIKE) * min(figures)):
        least, most = (f"{rounded_up(pick(figures)):.4f}" for pick in (min, max))
        high = most if len(figures) == len(proven) else "unbounded"
        said.append(
            f"Epsilons are not equal ({least} to {high}): only rows of equal epsilon are a fair "
            "comparison."
        )
    return said
