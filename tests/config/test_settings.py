"""`--set section.key=value` changes a copy of an experiment's content."""

from __future__ import annotations

import pytest

from dpfl.config.settings import with_settings
from dpfl.errors import DpflError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("0.5", 0.5),
        ("true", True),
        ("[1, 2]", [1, 2]),
        ("{ share = 0.2 }", {"share": 0.2}),
        ("iid", "iid"),
        ('"5"', "5"),
        (" 5 ", 5),
        ("a=b", "a=b"),
        ("", ""),
    ],
)
def test_a_value_is_toml_where_it_can_be_and_text_elsewhere(text, value):
    assert with_settings({}, [f"data.key={text}"]) == {"data": {"key": value}}


def test_the_content_stays_as_it_was():
    content = {"budget": {"rounds": 80}}
    assert with_settings(content, ["budget.rounds=5", "seed=1"]) == {
        "budget": {"rounds": 5},
        "seed": 1,
    }
    assert content == {"budget": {"rounds": 80}}


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("budget.rounds", "takes section.key=value"),
        ("=5", "takes section.key=value"),
        ("seed.key=5", "'seed' is a value, not a section"),
    ],
)
def test_a_setting_of_another_form_is_refused(setting, expected):
    with pytest.raises(DpflError, match=expected):
        with_settings({"seed": 0}, [setting])


def test_a_number_of_too_many_digits_is_text():
    assert with_settings({}, ["seed=" + "9" * 5000]) == {"seed": "9" * 5000}
