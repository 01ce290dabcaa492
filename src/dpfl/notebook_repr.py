"""What people look at in a notebook: made by a file of report/, which is read when a page or a
picture is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar


class NotebookView:
    """Has a page, `_repr_html_`, and a picture, `plot`; a subclass names the file with its `html`
    and `plot`.
    """

    _shown_by: ClassVar[str]

    def __init_subclass__(cls, shown_by: str = "", **options: Any) -> None:
        super().__init_subclass__(**options)
        if shown_by:
            cls._shown_by = f"dpfl.views.notebook.{shown_by}"

    def _repr_html_(self) -> str:
        return str(import_module(self._shown_by).html(self))

    def plot(self) -> Any:
        """A figure of matplotlib, which a notebook shows by itself; `.savefig(path)` writes it."""
        return import_module(self._shown_by).plot(self)
