"""The common style of all figures, and how a figure becomes an SVG or a PNG.

A figure looks the same on paper, on a light page and on a dark page.
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
"""Colours that people with colour blindness can distinguish, on white and on black. From the ninth
line on, dashes distinguish lines as well.
"""
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))
PROVEN_COLOUR, CLAIMED_COLOUR, AUDITED_COLOUR, NOTHING_COLOUR = (
    "#2f9e6e",
    "#d9730d",
    "#3b6fd4",
    "#c2372e",
)

INK, FAINT, PAPER = "#1b2430", "#c4ccd6", "#ffffff"
"""Colours of a PNG. In an SVG within a page, text and grid follow the theme of the page."""
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
"""Settings of matplotlib for every figure."""


@dataclass(frozen=True)
class FigureFile:
    """A figure with its name as a file, its title, and a sentence that says what to see."""

    name: str
    title: str
    sentence: str
    figure: Figure

    def svg(self) -> str:
        """Draws the figure for a page: text stays text, and takes the colours of the page.

        Returns:
            An `<svg>` element without a fixed size. The ids in it begin with the figure's name.
        """
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
        text = _with_own_ids(text, self.name)
        return text.replace(INK, "currentColor").replace(FAINT, "var(--grid, #c4ccd6)").strip()

    def svg_file(self) -> str:
        """Draws the figure as a file of its own.

        Returns:
            A whole SVG document on a white background.
        """
        from matplotlib import rc_context

        out = io.StringIO()
        with rc_context({"svg.hashsalt": self.name}):
            self.figure.savefig(out, format="svg", facecolor=PAPER, metadata={"Date": None})
        return out.getvalue()

    def png(self) -> bytes:
        """Draws the figure as a PNG.

        Returns:
            The file, at 150 dots per inch on a white background.
        """
        out = io.BytesIO()
        self.figure.savefig(out, format="png", dpi=150, facecolor=PAPER)
        return out.getvalue()


def _with_own_ids(svg: str, name: str) -> str:
    """Makes the ids of a figure its own, because two figures in one page must not share any."""
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    return re.sub(r"(url\(#|href=\"#)", rf"\g<1>{name}-", svg)


def canvas(
    rows: int = 1, width: float = 6.2, height: float = 3.5, **options: Any
) -> tuple[Figure, list[Axes]]:
    """Makes an empty figure with axes one above another.

    Args:
        rows: The number of axes.
        width: The width of the figure, in inches.
        height: The height of the figure, in inches.
        options: Passed on to `Figure.subplots`, such as `sharex`.

    Returns:
        The figure, and its axes from top to bottom.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots(rows, 1, squeeze=False, **options)[:, 0]
    return figure, list(axes)


def line_style(number: int) -> dict[str, Any]:
    """Chooses colour and dashes of a line.

    Args:
        number: The place of the line, from 0.

    Returns:
        Keyword arguments of `Axes.plot`, different for each of the first 32 lines.
    """
    dash = DASHES[number // len(PALETTE) % len(DASHES)]
    return {"color": PALETTE[number % len(PALETTE)], "linestyle": dash}


def legend(figure: Figure, labels: Sequence[str], axis: Axes) -> None:
    """Adds a legend below the axes, where there is more than one line.

    Args:
        figure: The figure.
        labels: The names of the lines, which decide the number of columns.
        axis: The axes that hold the labelled lines.
    """
    if len(labels) > 1:
        handles, names = axis.get_legend_handles_labels()
        columns = 1 if max(map(len, labels)) > 30 else 2
        figure.legend(
            handles, names, loc="outside lower left", ncols=columns, frameon=False, labelcolor=INK
        )


def as_text(name: str) -> str:
    """Makes a name safe as a label.

    Args:
        name: Any name. matplotlib would read `$` as mathematics, and leaves names with a leading
            underscore out of a legend.

    Returns:
        The label, which shows the same name.
    """
    text = name.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def whole_ticks(axis: Any) -> None:
    """Puts ticks at whole numbers only, at most eight of them.

    Args:
        axis: An x or y axis of matplotlib.
    """
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=8, integer=True))
