"""Sentences of earlier versions are brought into the words of this one, and nothing else is."""

from dpfl.certificate.earlier_words import REWORDED, in_present_words
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
