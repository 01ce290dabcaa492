"""The display of an object in a notebook. A module of `views/notebook` lays it out, and is imported
when a page or a picture is requested.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar


class NotebookView:
    """An object that a notebook shows as a page, and that can be plotted.

    A subclass names the module of `views/notebook` that has its functions `html` and `plot`:
    `class Result(NotebookView, shown_by="result_page")`.
    """

    _shown_by: ClassVar[str]

    def __init_subclass__(cls, shown_by: str = "", **options: Any) -> None:
        super().__init_subclass__(**options)
        if shown_by:
            cls._shown_by = f"dpfl.views.notebook.{shown_by}"

    def _repr_html_(self) -> str:
        return str(import_module(self._shown_by).html(self))

    def plot(self) -> Any:
        """Draws the object.

        Returns:
            A figure of matplotlib, which a notebook shows by itself; `.savefig(path)` writes it.
        """
        return import_module(self._shown_by).plot(self)
