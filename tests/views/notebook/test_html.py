"""Pieces of HTML for notebooks: all text is escaped, and long tables are cut."""

from __future__ import annotations

from dpfl.views.notebook.html import card, facts, table
from tests.views.notebook.html_reader import Balanced

HOSTILE = "<script>alert(1)</script>&\"'"


def test_words_of_others_are_words() -> None:
    page = Balanced(
        card(HOSTILE, facts([(HOSTILE, HOSTILE)], (HOSTILE,)), table([HOSTILE], [[HOSTILE]]))
    )
    assert page.words.count(HOSTILE) == 5


def test_a_long_table_shows_its_ends() -> None:
    page = Balanced(table(["n"], [[number] for number in range(1000)])).words
    assert "999" in page
    assert "500" not in page
    assert "1000 rows" in page
