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
    """A figure of matplotlib that needs no window and changes no global state."""

    def __init__(self, width: float, height: float, **options: Any) -> None:
        super().__init__(figsize=(width, height), dpi=DPI, **({"layout": "constrained"} | options))
        FigureCanvasAgg(self)

    def subplots(self, *args: Any, **options: Any) -> Any:
        """Adds axes in the style of dpfl's figures.

        Args:
            args: As for `Figure.subplots`.
            options: As for `Figure.subplots`.

        Returns:
            The axes.
        """
        with rc_context(STYLE):
            return super().subplots(*args, **options)

    def save(self, path: Path | str) -> None:
        """Writes the figure to a file.

        Args:
            path: The file; its ending chooses PNG, SVG or PDF. Its folder is created.
        """
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.savefig(path)

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()
