"""The page on the review names tests: they are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NAMED = re.findall(r"`(tests/[\w/.:]+)`", (ROOT / "docs" / "review.md").read_text())


@pytest.mark.parametrize("name", NAMED)
def test_a_test_that_the_page_names_exists(name):
    path, _, test = name.partition("::")
    assert (ROOT / path).exists()
    if test and (ROOT / path).is_file():
        assert re.search(
            rf"^\s*(def|class) {re.escape(test)}\b", (ROOT / path).read_text(), re.MULTILINE
        )
