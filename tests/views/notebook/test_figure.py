"""A figure for notebooks shows itself, and is saved by the ending of its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfl.views.notebook.figure import NotebookFigure


def test_a_figure_shows_itself_as_png() -> None:
    figure = NotebookFigure(2, 1)
    figure.subplots()
    assert figure._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_a_figure_is_saved_into_a_new_folder(tmp_path: Path, ending: str, start: bytes) -> None:
    path = tmp_path / "new" / f"figure.{ending}"
    NotebookFigure(2, 1).save(path)
    assert path.read_bytes().startswith(start)
