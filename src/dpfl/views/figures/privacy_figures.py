"""Figures of privacy: three epsilons, every account against its limit, lost replies, and who holds
what.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpfl.privacy.figures import UNBOUNDED, epsilon_text, rounded_down
from dpfl.views.figures.canvas import (
    AUDITED_COLOUR,
    CLAIMED_COLOUR,
    INK,
    NOTHING_COLOUR,
    PROVEN_COLOUR,
    FigureFile,
    as_text,
    canvas,
    whole_ticks,
)
from dpfl.views.run_lines import shorten
from dpfl.views.run_tables import RunTables
from dpfl.views.run_view import epsilon_in_words

MOST_NAMES = 40
"""With more clients than this, names are left out."""

COLOURS = {"claimed": CLAIMED_COLOUR, "proven": PROVEN_COLOUR, "audited": AUDITED_COLOUR}


def three_epsilons(runs: Sequence[RunTables]) -> FigureFile | None:
    """Draws the claimed, the proven and the audited epsilon, never one of them alone.

    Args:
        runs: Runs that have ended or are under way.

    Returns:
        Three bars per run; None if no run protects anybody.
    """
    ended_runs = [run for run in runs if run.statement]
    if all(run.protects_nobody for run in ended_runs):
        return None
    figure, (axis,) = canvas(height=1.2 + 0.95 * len(ended_runs))
    values = [value for run in ended_runs for value in run.epsilons.values()]
    widest = max((value for value in values if isinstance(value, float)), default=1.0) or 1.0
    for place, run in enumerate(ended_runs):
        for number, kind in enumerate(COLOURS):
            _epsilon_bar(axis, place + 0.27 * (number - 1), kind, run.epsilons[kind], widest)
    axis.set(
        xlabel=f"epsilon ({_scopes(ended_runs)})",
        xlim=(0, 1.75 * widest),
        ylim=(len(ended_runs) - 0.5, -0.5),
    )
    axis.set_yticks(range(len(ended_runs)), [as_text(shorten(run.name)) for run in ended_runs])
    axis.grid(axis="y", visible=False)
    axis.tick_params(axis="y", length=0)
    sentence = _three_sentence(ended_runs)
    return FigureFile("three-epsilons", "Claimed, proven and measured epsilon", sentence, figure)


def _epsilon_bar(
    axis: Any, place: float, kind: str, value: float | str | None, widest: float
) -> None:
    """Draws one bar with its figure. An unbounded one is hatched and longer than all others."""
    style: Any = {"color": COLOURS[kind]}
    length = value if isinstance(value, float) else 0.0
    if value == UNBOUNDED:
        style = {"color": NOTHING_COLOUR, "hatch": "///", "alpha": 0.6}
        length = 1.12 * widest
    axis.barh(place, length, 0.22, **style)
    text = f"{kind} {epsilon_in_words(kind, value)}".replace("audited not audited", "not audited")
    axis.annotate(
        text,
        (length, place),
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        fontsize=9,
        color=INK,
    )


def _scopes(runs: Sequence[RunTables]) -> str:
    scopes = {run.guarantee for run in runs if not run.protects_nobody} or {"nobody is protected"}
    return scopes.pop() if len(scopes) == 1 else "units and deltas differ: see the table"


def _three_sentence(runs: Sequence[RunTables]) -> str:
    first = runs[0]
    proven_epsilon, claimed_epsilon, audited_epsilon = (
        first.epsilons[kind] for kind in ("proven", "claimed", "audited")
    )
    run = f"For {first.name}" if len(runs) > 1 else "For this run"
    if proven_epsilon == UNBOUNDED:
        sentence = f"{run} no epsilon is proven"
        if claimed_epsilon is not None:
            sentence += f", although the paper claims {epsilon_text(claimed_epsilon)}"
    else:
        sentence = f"{run} epsilon {epsilon_text(proven_epsilon)} is proven ({first.guarantee})"
    audit = "The measured epsilon is a lower bound."
    if audited_epsilon is None:
        audit = "An audit would give a lower bound (dpfl audit RUN)."
    return (
        f"{sentence}. {audit} Only the proven epsilon is a guarantee: the claimed one is the "
        "paper's own figure, and the measured one comes from an attack."
    )


def accounts(run: RunTables) -> FigureFile | None:
    """Draws the proven epsilon of every account against its limit.

    Args:
        run: A run that has ended.

    Returns:
        One bar per account, or a histogram of many; None without a guarantee.
    """
    epsilons = {
        name: float(value)
        for name, value in run.statement.get("per_client", {}).items()
        if isinstance(value, int | float)
    }
    if not epsilons:
        return None
    few = len(epsilons) <= MOST_NAMES
    figure, (axis,) = canvas(height=min(1.4 + 0.27 * len(epsilons), 9.0) if few else 3.5)
    label = f"epsilon proven ({run.guarantee})"
    if few:
        _account_bars(axis, epsilons, run.limits)
        axis.set(xlabel=label)
        if any(name in run.limits for name in epsilons):
            figure.legend(loc="outside lower left", frameon=False, labelcolor=INK)
    else:
        axis.hist(list(epsilons.values()), bins=40, color=PROVEN_COLOUR)
        for number, limit in enumerate(sorted(set(run.limits.values()))[:3]):
            axis.axvline(limit, color=INK, linewidth=2, label=None if number else "limits")
        axis.set(xlabel=label, ylabel="accounts", xlim=(0, None))
        whole_ticks(axis.yaxis)
    sentence = _accounts_sentence(run, epsilons)
    return FigureFile("accounts", "Every account against its limit", sentence, figure)


def _account_bars(axis: Any, epsilons: Mapping[str, float], limits: Mapping[str, float]) -> None:
    axis.barh(range(len(epsilons)), list(epsilons.values()), 0.62, color=PROVEN_COLOUR)
    first = next((name for name in epsilons if name in limits), None)
    for place, name in enumerate(epsilons):
        if name in limits:
            ends = [place - 0.42, place + 0.42]
            label = "its limit" if name == first else None
            axis.plot([limits[name]] * 2, ends, color=INK, linewidth=2, label=label)
    axis.set_yticks(range(len(epsilons)), [as_text(shorten(name)) for name in epsilons])
    axis.set(ylim=(len(epsilons) - 0.5, -0.5), xlim=(0, None))
    axis.grid(axis="y", visible=False)


def _accounts_sentence(run: RunTables, epsilons: Mapping[str, float]) -> str:
    largest = max(epsilons, key=lambda name: epsilons[name])
    room = ". Its ledger has no limit."
    if (limit := run.limits.get(largest)) is not None:
        remaining = rounded_down(max(limit - epsilons[largest], 0) + 1e-10)
        room = f" of {limit:g} allowed; {remaining:.4f} remain."
    count = len(run.lost_replies)
    replies = f"{count} {'reply was' if count == 1 else 'replies were'} refused or lost."
    if not count:
        replies = "No reply was refused or lost."
    epsilon = epsilon_text(epsilons[largest])
    return f"The account that has spent the most is {largest}: epsilon {epsilon}{room} {replies}"


def losses(run: RunTables) -> FigureFile | None:
    """Draws which replies did not count, and when.

    Args:
        run: A run.

    Returns:
        One mark per reply; None if all counted.
    """
    replies = [reply for reply in run.lost_replies if reply.round]
    if not replies:
        return None
    names = sorted({reply.client for reply in replies})[:MOST_NAMES]
    marks = [reply for reply in replies if reply.client in names]
    figure, (axis,) = canvas(height=1.3 + 0.3 * len(names))
    rounds = [reply.round for reply in marks]
    places = [names.index(reply.client) for reply in marks]
    axis.scatter(rounds, places, color=CLAIMED_COLOUR, marker="x", s=30)
    axis.set_yticks(range(len(names)), [as_text(shorten(name)) for name in names])
    last = max(row.round for row in run.rows)
    axis.set(xlabel="round", xlim=(0, last + 1), ylim=(len(names) - 0.5, -0.5))
    whole_ticks(axis.xaxis)
    first = replies[0]
    clients = len({reply.client for reply in replies})
    count = "1 reply" if len(replies) == 1 else f"{len(replies)} replies"
    senders = "1 client" if clients == 1 else f"{clients} clients"
    sentence = (
        f"{count} from {senders} did not count. The first was in round {first.round}, "
        f"{first.client}: {first.why.rstrip('.')}."
    )
    return FigureFile("lost", "Refused and lost replies", sentence, figure)


def partition(counts: np.ndarray, how: str, names: Sequence[str]) -> FigureFile:
    """Draws which client holds how many samples of which class. Only for public data.

    Args:
        counts: Samples by client and class.
        how: How the data was split.
        names: The names of the clients.

    Returns:
        The figure.
    """
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
        ylabel="" if clients <= MOST_NAMES else "client",
    )
    if clients <= MOST_NAMES:
        axis.set_yticks(range(clients), [as_text(shorten(name)) for name in names[:clients]])
    whole_ticks(axis.xaxis)
    axis.tick_params(length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)
    sizes, kinds = counts.sum(axis=1), np.count_nonzero(counts, axis=1)
    kinds_held = f" of {kinds.min()} to {kinds.max()} of {classes} classes" if classes > 1 else ""
    sentence = (
        f"{clients} clients hold {sizes.min():,} to {sizes.max():,} samples{kinds_held} ({how}). "
        "A row with few colours is a client that has few classes. The data set and its split are "
        "public."
    )
    return FigureFile("partition", "Who holds what", sentence, figure)
