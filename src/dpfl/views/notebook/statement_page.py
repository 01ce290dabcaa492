"""A privacy statement in a notebook: its rows, and its epsilons as bars."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dpfl.privacy import PrivacyStatement
from dpfl.privacy.figures import epsilon_text
from dpfl.privacy.statement_view import LOUD
from dpfl.views.figures.canvas import CLAIMED_COLOUR, PROVEN_COLOUR
from dpfl.views.notebook.html import card, facts

if TYPE_CHECKING:
    from dpfl.views.notebook.figure import NotebookFigure

COLOURS = {"claimed": CLAIMED_COLOUR, "proven": PROVEN_COLOUR}
SHOWN_CLIENTS = 200


def html(statement: PrivacyStatement) -> str:
    """Lays out a statement.

    Args:
        statement: The guarantee of a run.

    Returns:
        HTML for a notebook cell.
    """
    return card("privacy statement", facts(statement.view.rows, LOUD))


def plot(statement: PrivacyStatement) -> NotebookFigure:
    """Draws the claimed and the proven epsilon side by side, and the epsilon of every client.

    Args:
        statement: The guarantee of a run.

    Returns:
        Bars, with the delta and the unit on their axis.
    """
    from dpfl.views.notebook.figure import NotebookFigure

    finite_epsilons = (
        epsilon for epsilon in statement.per_client.values() if math.isfinite(epsilon)
    )
    clients = sorted(finite_epsilons, reverse=True)
    if len(clients) > 1:
        picture = NotebookFigure(9, 3.6)
        bars, by_client = picture.subplots(1, 2, width_ratios=(1, 2), squeeze=False)[0]
        largest = clients[:SHOWN_CLIENTS]
        by_client.bar(range(len(largest)), largest, color=COLOURS["proven"])
        by_client.set(
            xlabel="client, largest epsilon first", ylabel="proven epsilon of its own data"
        )
        by_client.margins(y=0.15)
    else:
        picture = NotebookFigure(4.5, 3.6)
        bars = picture.subplots()
    _bars(bars, {"claimed": statement.claimed, "proven": statement.proven})
    bars.set_ylabel(f"epsilon at delta {statement.delta:g}, for one {statement.unit}")
    is_unbounded = math.isinf(statement.proven)
    title = "Unbounded: no epsilon holds" if is_unbounded else "Claimed and proven"
    picture.suptitle(title, fontsize="medium")
    return picture


def _bars(axis: Any, epsilons: dict[str, float | None]) -> None:
    """Draws one bar per epsilon. An unbounded one is hatched and says so; a missing one is a
    word.
    """
    finite = [value for value in epsilons.values() if value is not None and math.isfinite(value)]
    top = 1.4 * max(finite, default=1.0) or 1.0
    for place, (name, epsilon) in enumerate(epsilons.items()):
        if epsilon is None:
            axis.annotate("nothing", (place, 0), ha="center", va="bottom", color="0.4")
        elif math.isinf(epsilon):
            axis.bar(place, top, color="none", edgecolor=COLOURS[name], hatch="//", linewidth=0)
            middle = {"ha": "center", "va": "center", "rotation": 90, "backgroundcolor": "white"}
            axis.annotate("unbounded", (place, top / 2), **middle)
        else:
            bar = axis.bar(place, epsilon, color=COLOURS[name])
            axis.bar_label(bar, [epsilon_text(epsilon)])
    axis.set(ylim=(0, top), xlim=(-0.6, len(epsilons) - 0.4))
    axis.set_xticks(range(len(epsilons)), list(epsilons))
    axis.grid(axis="x", visible=False)
