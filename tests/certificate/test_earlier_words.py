"""Sentences of earlier versions are brought into the words of this one, and nothing else is."""

import pytest

from dpfl.certificate.earlier_words import (
    REWORDED,
    in_present_words,
    noise_row_in_present_words,
)
from dpfl.privacy.statement_view import NOISE, USED, unit_in_words


def test_every_earlier_sentence_has_a_present_one() -> None:
    for earlier, present in REWORDED:
        assert in_present_words(f"a {earlier} b") == f"a {present} b"
        assert in_present_words(present) == present


def test_the_present_sentences_are_those_that_are_written() -> None:
    present = [words for _, words in REWORDED]
    assert unit_in_words("person") in present
    assert set(NOISE.values()) <= set(present)
    assert any(words.endswith(USED) for words in present)


def test_figures_stay_as_they_are() -> None:
    assert in_present_words("epsilon 3.9950 of 4") == "epsilon 3.9950 of 4"


@pytest.mark.parametrize(
    ("noise", "earlier"),
    [
        ("secure", "from the operating system, on a grid"),
        ("shared", "from the operating system, in floating point"),
        ("floating-point", "from the operating system, in floating point"),
    ],
)
def test_the_noise_row_of_an_earlier_page_is_reworded(noise: str, earlier: str) -> None:
    page = f'<td class="">{earlier}</td>'
    assert noise_row_in_present_words(page, "system", noise, "a < b") == (
        '<td class="">a &lt; b</td>'
    )
    assert noise_row_in_present_words(page, "seed", noise, "a < b") == page


def test_a_page_that_calls_other_noise_secure_stays_wrong() -> None:
    page = "<td>from a seed, on a grid</td>"
    assert noise_row_in_present_words(page, "seed", "floating-point", "integers") == page
