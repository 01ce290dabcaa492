"""A figure that notebooks show by themselves, with or without pyplot."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dpfl.views.figures.canvas import STYLE

DPI = 130


class NotebookFigure(Figure):
    """A figure of matplotlib like any other, which no window and no global state belongs to."""

    def __init__(self, width: float, height: float, **options: Any) -> None:
        super().__init__(figsize=(width, height), dpi=DPI, **({"layout": "constrained"} | options))
        FigureCanvasAgg(self)

    def subplots(self, *args: Any, **options: Any) -> Any:
        with rc_context(STYLE):
            return super().subplots(*args, **options)

    def save(self, path: Path | str) -> None:
        """As PNG, SVG or PDF, by the name's ending; the folder is made."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.savefig(path)

    def _repr_png_(self) -> bytes:
        held = io.BytesIO()
        self.savefig(held, format="png")
        return held.getvalue()
