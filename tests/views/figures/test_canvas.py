"""The common style of figures: ids of their own, safe labels, and lines that can be told apart."""

from __future__ import annotations

import pytest

from dpfl.views.figures.canvas import (
    DASHES,
    PALETTE,
    FigureFile,
    as_text,
    canvas,
    legend,
    line_style,
    whole_ticks,
)


def test_figures_on_one_page_share_no_id_and_take_its_colours() -> None:
    figure, (axis,) = canvas()
    axis.plot([0, 1], [0, 1], label="a line")
    whole_ticks(axis.xaxis)
    svg = FigureFile("one", "One", "A line.", figure).svg()
    assert svg.startswith("<svg")
    assert 'id="one-' in svg
    assert "currentColor" in svg
    assert svg.count('id="') == svg.count('id="one-')
    assert FigureFile("one", "One", "A line.", figure).png().startswith(b"\x89PNG")


def test_the_first_32_lines_differ() -> None:
    styles = {str(line_style(number)) for number in range(len(PALETTE) * len(DASHES))}
    assert len(styles) == 32
    assert line_style(32) == line_style(0)


@pytest.mark.parametrize(
    ("name", "label"), [("a", "a"), ("_hidden", " _hidden"), ("$x$", r"\$x\$")]
)
def test_a_label_is_never_a_formula_and_never_hidden(name: str, label: str) -> None:
    assert as_text(name) == label


@pytest.mark.parametrize(("labels", "legends"), [(["a"], 0), (["a", "b"], 1)])
def test_a_single_line_needs_no_legend(labels: list[str], legends: int) -> None:
    figure, (axis,) = canvas()
    for label in labels:
        axis.plot([0, 1], label=label)
    legend(figure, labels, axis)
    assert len(figure.legends) == legends
