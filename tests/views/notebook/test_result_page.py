"""What notebooks show of results, statements, federations, plans and comparisons, and the tables
that other tools take.
"""

from __future__ import annotations

import dpfl
from tests.views.notebook.html_reader import words


def test_a_result_shows_its_statement_and_draws_its_rounds(results: list[dpfl.Result]) -> None:
    shown = words(results[0])
    for heading, text in results[0].privacy.lines():
        assert heading in shown
        assert text in shown
    assert results[0].measured in shown
    names = [axis.get_ylabel() for axis in results[0].plot().axes]
    assert names == ["test accuracy, %", "test accuracy, %", "steps per round (tau)"]
    assert results[0].plot()._repr_png_().startswith(b"\x89PNG")
