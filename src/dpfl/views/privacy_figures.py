"""What a run cost in privacy, drawn: three epsilons, every account against its limit, who was lost,
who holds what.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpfl.privacy.statement import rounded_up
from dpfl.views.canvas import (
    AUDITED,
    CLAIMED,
    INK,
    NOTHING,
    PROVEN,
    FigureFile,
    as_text,
    canvas,
    whole_ticks,
)
from dpfl.views.lines import shorten
from dpfl.views.run_tables import RunTables

NAMED = 40
"""More clients than this are drawn without their names."""


def three_epsilons(runs: Sequence[RunTables]) -> FigureFile | None:
    """Claimed by the paper, proven of the run, and measured by an attack: never one of them
    alone.
    """
    told = [run for run in runs if run.statement]
    if all(run.unit == "none" for run in told):
        return None
    figure, (axis,) = canvas(height=1.2 + 0.95 * len(told))
    kinds = (("claimed", CLAIMED), ("proven", PROVEN), ("audited", AUDITED))
    finite = [
        value for run in told for value in three_values(run).values() if isinstance(value, float)
    ]
    widest = max(finite, default=1.0) or 1.0
    for place, run in enumerate(told):
        for number, (kind, colour) in enumerate(kinds):
            value, at = three_values(run)[kind], place + 0.27 * (number - 1)
            length = (
                value
                if isinstance(value, float)
                else 1.12 * widest
                if value == "unbounded"
                else 0.0
            )
            style: Any = (
                {"color": NOTHING, "hatch": "///", "alpha": 0.6}
                if value == "unbounded"
                else {"color": colour}
            )
            axis.barh(at, length, 0.22, **style)
            said = f"{kind} {epsilon_words(value, kind)}"
            axis.annotate(
                said,
                (length, at),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
                color=INK,
            )
    axis.set(
        xlabel=f"epsilon ({_kinds(told)})", xlim=(0, 1.75 * widest), ylim=(len(told) - 0.5, -0.5)
    )
    axis.set_yticks(range(len(told)), [as_text(shorten(run.name)) for run in told])
    axis.grid(axis="y", visible=False)
    axis.tick_params(axis="y", length=0)
    return FigureFile("three-epsilons", "Claimed, proven, audited", _three_sentence(told), figure)


def three_values(run: RunTables) -> dict[str, Any]:
    audited = run.audit.get("measured")
    found = {
        "claimed": run.statement.get("claimed"),
        "proven": run.statement.get("proven"),
        "audited": audited,
    }
    return {
        kind: _finite(value) if isinstance(value, int | float) else value
        for kind, value in found.items()
    }


def _finite(value: float) -> float | str | None:
    return None if math.isnan(value) else float(value) if math.isfinite(value) else "unbounded"


def epsilon_words(value: Any, kind: str) -> str:
    """A bound from above is rounded up, one from below down."""
    if value is None:
        return "nothing" if kind == "claimed" else "not yet" if kind == "audited" else "nothing"
    if not isinstance(value, float):
        return str(value)
    return (
        f"at least {math.floor(1e4 * value) / 1e4:.4f}"
        if kind == "audited"
        else f"{rounded_up(value):.4f}"
    )


def _kinds(runs: Sequence[RunTables]) -> str:
    words = {run.guarantee for run in runs if run.unit != "none"} or {"nobody is protected"}
    return words.pop() if len(words) == 1 else "of units and deltas that differ: see the table"


def _three_sentence(runs: Sequence[RunTables]) -> str:
    first, rest = runs[0], len(runs) > 1
    found, whose = three_values(first), f"Of {first.name} " if rest else ""
    if found["proven"] == "unbounded":
        said = f"{whose or 'Of this run '}no epsilon is proven"
        said += (
            f", though {epsilon_words(found['claimed'], 'claimed')} is claimed"
            if found["claimed"] is not None
            else ""
        )
    else:
        said = (
            f"{whose}{'e' if whose else 'E'}psilon {epsilon_words(found['proven'], 'proven')} "
            f"is proven ({first.guarantee})"
        )
    audit = (
        "an audit would bound it from below (dpfl audit RUN)"
        if found["audited"] is None
        else "what was measured lies below it"
    )
    return (
        f"{said}; {audit}. Only proven is a guarantee: claimed is the paper's own word, "
        "audited "
        "what an attack could show."
    )


def accounts(run: RunTables) -> FigureFile | None:
    """Epsilon of every account against what it allows."""
    held = {
        name: value
        for name, value in run.statement.get("per_client", {}).items()
        if isinstance(value, int | float)
    }
    if not held:
        return None
    names, values = list(held), [float(value) for value in held.values()]
    limits = [run.limits.get(name) for name in names]
    figure, (axis,) = canvas(
        height=min(1.4 + 0.27 * len(names), 9.0) if len(names) <= NAMED else 3.5
    )
    if len(names) <= NAMED:
        axis.barh(range(len(names)), values, 0.62, color=PROVEN)
        for place, limit in enumerate(limits):
            if limit is not None:
                axis.plot(
                    [limit, limit],
                    [place - 0.42, place + 0.42],
                    color=INK,
                    linewidth=2,
                    label=None if place else "its limit",
                )
        axis.set_yticks(range(len(names)), [as_text(shorten(name)) for name in names])
        axis.set(
            xlabel=f"epsilon proven ({run.guarantee})",
            ylim=(len(names) - 0.5, -0.5),
            xlim=(0, None),
        )
        axis.grid(axis="y", visible=False)
        if any(limit is not None for limit in limits):
            figure.legend(loc="outside lower left", frameon=False, labelcolor=INK)
    else:
        axis.hist(values, bins=40, color=PROVEN)
        for number, limit in enumerate(
            sorted({limit for limit in limits if limit is not None})[:3]
        ):
            axis.axvline(limit, color=INK, linewidth=2, label=None if number else "limits")
        axis.set(xlabel=f"epsilon proven ({run.guarantee})", ylabel="accounts", xlim=(0, None))
        whole_ticks(axis.yaxis)
    return FigureFile(
        "accounts", "Every account against its limit", _accounts_sentence(run, held), figure
    )


def _accounts_sentence(run: RunTables, held: dict[str, Any]) -> str:
    most = max(held, key=lambda name: held[name])
    spent = rounded_up(float(held[most]))
    limit = run.limits.get(most)
    room = (
        f" of {limit:g} allowed, {math.floor(1e4 * max(limit - spent, 0) + 1e-6) / 1e4:.4f} left"
        if limit is not None
        else ", with no limit on its ledger"
    )
    lost = (
        f" {len(run.lost)} replies were refused or lost."
        if run.lost
        else " Nobody was refused or lost."
    )
    return f"The fullest account is {most}: epsilon {spent:.4f}{room}.{lost}"


def losses(run: RunTables) -> FigureFile | None:
    """Whose replies did not count, and when."""
    when = [lost for lost in run.lost if lost.round]
    if not when:
        return None
    names = sorted({lost.client for lost in when})[:NAMED]
    shown = [lost for lost in when if lost.client in names]
    figure, (axis,) = canvas(height=1.3 + 0.3 * len(names))
    axis.scatter(
        [lost.round for lost in shown],
        [names.index(lost.client) for lost in shown],
        color=CLAIMED,
        marker="x",
        s=30,
    )
    axis.set_yticks(range(len(names)), [as_text(shorten(name)) for name in names])
    axis.set(
        xlabel="round",
        xlim=(0, max(row.round for row in run.rows) + 1),
        ylim=(len(names) - 0.5, -0.5),
    )
    whole_ticks(axis.xaxis)
    first = when[0]
    said = f"{len(when)} replies of {len({lost.client for lost in when})} clients did not count"
    about = f"the first in round {first.round}, {first.client}: {first.why.rstrip('.')}"
    return FigureFile("lost", "Who was refused or lost, and when", f"{said}; {about}.", figure)


def partition(counts: np.ndarray, how: str, names: Sequence[str]) -> FigureFile:
    """Who holds what, where that is public: samples by client and class."""
    clients, classes = counts.shape
    figure, (axis,) = canvas(height=float(np.clip(1.3 + 0.27 * clients, 2.4, 9)))
    image = axis.pcolormesh(
        np.arange(classes), np.arange(clients), counts, cmap="viridis", shading="nearest"
    )
    axis.invert_yaxis()
    bar = figure.colorbar(image, ax=axis, label="samples")
    bar.outline.set_visible(False)  # type: ignore[operator]
    axis.grid(visible=False)
    axis.set(
        xlabel="class" if classes > 1 else "all samples",
        ylabel="" if clients <= NAMED else "client",
    )
    if clients <= NAMED:
        axis.set_yticks(range(clients), [as_text(shorten(name)) for name in names[:clients]])
    whole_ticks(axis.xaxis)
    axis.tick_params(length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)
    sizes, kinds = counts.sum(axis=1), np.count_nonzero(counts, axis=1)
    said = f"{clients} clients hold {sizes.min():,} to {sizes.max():,} samples" + (
        f" of {kinds.min()} to {kinds.max()} of {classes} classes" if classes > 1 else ""
    )
    more = (
        "Rows of few colours are clients that see a part of the world only; the data set and "
        "how it was dealt are public."
    )
    return FigureFile("partition", "Who holds what", f"{said} ({how}). {more}", figure)
