"""A privacy statement on a page, and its figures as bars: what is claimed, what is proven, and what
a client has of it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dpfl.privacy import PrivacyStatement
from dpfl.privacy.statement import rounded_up
from dpfl.views.canvas import CLAIMED, PROVEN
from dpfl.views.html import card, facts

if TYPE_CHECKING:
    from dpfl.views.notebook import NotebookFigure

LOUD = ("warning", "not accounted for")
COLOURS = {"claimed": CLAIMED, "proven": PROVEN}
SHOWN_CLIENTS = 200


def html(privacy: PrivacyStatement) -> str:
    return card("privacy statement", facts(privacy.lines(), LOUD))


def plot(privacy: PrivacyStatement) -> NotebookFigure:
    """Beside each other, with the delta and the unit that all of it is for; clients from most to
    least, where they pay.
    """
    from dpfl.views.notebook import NotebookFigure

    clients = sorted(
        (epsilon for epsilon in privacy.per_client.values() if math.isfinite(epsilon)), reverse=True
    )
    picture = NotebookFigure(9 if len(clients) > 1 else 4.5, 3.6)
    axes = (
        picture.subplots(1, 2, width_ratios=(1, 2), squeeze=False)[0]
        if len(clients) > 1
        else [picture.subplots()]
    )
    bars(axes[0], {"claimed": privacy.claimed, "proven": privacy.proven})
    axes[0].set_ylabel(f"epsilon at delta {privacy.delta:g}, for one {privacy.unit}")
    if len(clients) > 1:
        shown = clients[:SHOWN_CLIENTS]
        axes[1].bar(range(len(shown)), shown, color=COLOURS["proven"])
        axes[1].set(
            xlabel="client, from the one that spent most", ylabel="epsilon proven of its own data"
        )
        axes[1].margins(y=0.15)
    picture.suptitle(
        "Unbounded: no epsilon holds" if math.isinf(privacy.proven) else "Claimed and proven",
        fontsize="medium",
    )
    return picture


def bars(axis: Any, epsilons: dict[str, float | None]) -> None:
    """A bar each; one without an end is hatched and says so, and what nobody claims has none."""
    known = [
        epsilon for epsilon in epsilons.values() if epsilon is not None and math.isfinite(epsilon)
    ]
    top = 1.4 * max(known, default=1.0) or 1.0
    for place, (name, epsilon) in enumerate(epsilons.items()):
        if epsilon is None:
            axis.annotate("nothing", (place, 0), ha="center", va="bottom", color="0.4")
        elif math.isinf(epsilon):
            axis.bar(place, top, color="none", edgecolor=COLOURS[name], hatch="//", linewidth=0)
            axis.annotate(
                "unbounded",
                (place, top / 2),
                ha="center",
                va="center",
                rotation=90,
                backgroundcolor="white",
            )
        else:
            axis.bar_label(
                axis.bar(place, epsilon, color=COLOURS[name]), [f"{rounded_up(epsilon):.4f}"]
            )
    axis.set(ylim=(0, top), xlim=(-0.6, len(epsilons) - 0.4))
    axis.set_xticks(range(len(epsilons)), list(epsilons))
    axis.grid(axis="x", visible=False)
