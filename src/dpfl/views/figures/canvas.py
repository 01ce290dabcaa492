"""Pictures that look alike, on paper, on a light page and on a dark one: matplotlib, as SVG or
PNG.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE = ("#3b6fd4", "#d9730d", "#2f9e6e", "#b8479e", "#7a5af0", "#0e9aa7", "#c2410c", "#64748b")
"""Told apart by people who see colours otherwise, on white and on black; from the ninth line on
dashes help.
"""
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))
PROVEN, CLAIMED, AUDITED, NOTHING = "#2f9e6e", "#d9730d", "#3b6fd4", "#c2372e"

INK, FAINT, PAPER = "#1b2430", "#c4ccd6", "#ffffff"
"""Of PNGs; on a page they follow its theme."""
STYLE: Any = {
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "axes.linewidth": 0.8,
    "font.size": 10,
    "axes.labelsize": 10,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "axes.axisbelow": True,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
}
"""The least ink that says what is there."""


@dataclass(frozen=True)
class FigureFile:
    """A figure with its name as a file, its title, and a sentence that says what to see."""

    name: str
    title: str
    sentence: str
    figure: Figure

    def svg(self) -> str:
        """To stand in a page: text as text, ink and grid in the colours of the page."""
        from matplotlib import rc_context

        out = io.StringIO()
        with rc_context({"svg.fonttype": "none", "svg.hashsalt": self.name}):
            self.figure.savefig(
                out, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
            )
        text = out.getvalue()
        text = text[text.index("<svg") :]
        text = re.sub(
            r'(<svg[^>]*?) width="[^"]*" height="[^"]*"', r"\1", text, count=1, flags=re.DOTALL
        )
        text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
        text = re.sub(r"font-family: [^;\"]*", "font-family: var(--font, sans-serif)", text)
        text = _apart(text, self.name)
        return text.replace(INK, "currentColor").replace(FAINT, "var(--grid, #c4ccd6)").strip()

    def svg_file(self) -> str:
        """To stand alone."""
        from matplotlib import rc_context

        out = io.StringIO()
        with rc_context({"svg.hashsalt": self.name}):
            self.figure.savefig(out, format="svg", facecolor=PAPER, metadata={"Date": None})
        return out.getvalue()

    def png(self) -> bytes:
        out = io.BytesIO()
        self.figure.savefig(out, format="png", dpi=150, facecolor=PAPER)
        return out.getvalue()


def _apart(svg: str, name: str) -> str:
    """Two pictures in one page must not share the names of their parts."""
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    return re.sub(r"(url\(#|href=\"#)", rf"\g<1>{name}-", svg)


def canvas(
    rows: int = 1, width: float = 6.2, height: float = 3.5, **options: Any
) -> tuple[Figure, list[Axes]]:
    """Axes one above another."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots(rows, 1, squeeze=False, **options)[:, 0]
    return figure, list(axes)


def line_style(number: int) -> dict[str, Any]:
    dash = DASHES[number // len(PALETTE) % len(DASHES)]
    return {"color": PALETTE[number % len(PALETTE)], "linestyle": dash}


def legend(figure: Figure, labels: Sequence[str], axis: Axes) -> None:
    """Below the picture, where there is more than one line."""
    if len(labels) > 1:
        handles, names = axis.get_legend_handles_labels()
        columns = 1 if max(map(len, labels)) > 30 else 2
        figure.legend(
            handles, names, loc="outside lower left", ncols=columns, frameon=False, labelcolor=INK
        )


def as_text(name: str) -> str:
    """A name as a label: not a formula, and not one that a legend leaves out."""
    text = name.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def whole_ticks(axis: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=8, integer=True))
