"""A privacy statement in a notebook; an unbounded epsilon is drawn as such."""

from __future__ import annotations

import math

import dpfl
from tests.views.notebook.html_reader import words


def test_a_statement_that_holds_nothing_is_drawn_without_an_end(results: list[dpfl.Result]) -> None:
    bounded = results[0].privacy
    picture = bounded.plot()
    assert len(picture.axes) == 2
    assert "for one sample" in picture.axes[0].get_ylabel()
    unbounded = dpfl.PrivacyStatement(
        "client",
        "add/remove one",
        1e-5,
        "the server",
        "none",
        math.inf,
        None,
        warnings=("<script>",),
    )
    assert "unbounded" in {text.get_text() for text in unbounded.plot().axes[0].texts}
    assert "<script>" in words(unbounded)
