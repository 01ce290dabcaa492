"""Sentences of earlier versions are brought into the words of this one, and nothing else is."""

import pytest

from dpfl.certificate.earlier_words import (
    REWORDINGS,
    audit_box_in_present_words,
    in_present_words,
    noise_row_in_present_words,
)
from dpfl.certificate.printed_page import audit_box
from dpfl.privacy.statement_view import NOISE, USED_NOTE, unit_in_words
from dpfl.run.outcome_view import ENDINGS


def test_every_earlier_sentence_has_a_present_one() -> None:
    for earlier, present in REWORDINGS:
        assert in_present_words(f"a {earlier} b") == f"a {present} b"
        assert in_present_words(present) == present


def test_the_present_sentences_are_those_that_are_written() -> None:
    present = [words for _, words in REWORDINGS]
    assert unit_in_words("person") in present
    assert set(NOISE.values()) <= set(present)
    assert any(words.endswith(USED_NOTE) for words in present)


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


AUDIT = {"verdict": "holds", "measured": 0.49999, "scope": "a round", "proven": 1.00001}
LABEL = "lower bound on epsilon, measured by an attack"


def test_what_an_earlier_page_rounded_to_the_nearest_is_rounded_to_its_safe_side() -> None:
    label = f"{LABEL} on a round (proven there: 1.0000); as reported, not checked"
    earlier = f"<div><strong>0.5000</strong><span>{label}</span></div>"
    present = audit_box_in_present_words(earlier, AUDIT, audit_box(AUDIT))
    assert "<strong>0.4999</strong>" in present
    assert "(proven there: 1.0001)" in present
    assert audit_box_in_present_words(present, AUDIT, audit_box(AUDIT)) == present
    forged = earlier.replace("0.5000", "0.4000")
    assert audit_box_in_present_words(forged, AUDIT, audit_box(AUDIT)) == forged


@pytest.mark.parametrize(
    ("audit", "figure"), [(None, "not audited"), ({"verdict": "x", "measured": None}, "see file")]
)
def test_an_earlier_page_without_a_measured_epsilon(audit: dict | None, figure: str) -> None:
    box = f"<div><strong>{figure}</strong><span>{LABEL}; as reported, not checked</span></div>"
    assert audit_box_in_present_words(box, audit, audit_box(audit)) == audit_box(audit)


@pytest.mark.parametrize("word", sorted(set(ENDINGS) - {"unfinished"}))
def test_an_earlier_card_named_the_ending_by_its_word(word: str) -> None:
    earlier = f"| ended | after 80 rounds, by {word} |"
    assert in_present_words(earlier) == f"| ended | after 80 rounds; {ENDINGS[word]} |"
