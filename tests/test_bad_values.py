"""Every kind of mistake has one sentence, which names the value and what to write instead."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dpfl.bad_values import (
    choose,
    invalid,
    is_number,
    read_toml,
    refuse_unknown_options,
    require_above,
    require_bool,
    require_choice,
    require_name,
    require_share,
    require_whole,
    suggest,
    wrong_value,
)
from dpfl.errors import DpflError


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    epsilon: float = Field(default=1.0, gt=0)


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    limits: Inner | None = None


def sentence(**content: object) -> str:
    with pytest.raises(ValidationError) as raised:
        Outer.model_validate(content)
    return str(invalid(raised.value, "the policy p.toml", Outer))


def test_a_mistyped_name_is_answered_with_the_nearest_one():
    assert suggest("dirichlett", ["iid", "dirichlet"]) == "did you mean 'dirichlet'?"
    assert suggest("zzz", ["iid", "dirichlet"]) == "choose one of iid, dirichlet."
    assert suggest("zzz", []) == "remove it: there are none."


def test_an_unknown_name_is_refused_and_a_known_one_returned():
    assert require_name("partition", "iid", ["iid"]) == "iid"
    assert choose("number", "two", {"one": 1, "two": 2}) == 2
    with pytest.raises(DpflError, match=r"^There is no number 'to'; did you mean 'two'\?$"):
        choose("number", "to", {"one": 1, "two": 2})


@pytest.mark.parametrize("name", [["iid"], {"name": "iid"}, 3, None])
def test_a_name_may_be_anything_that_a_file_can_hold(name):
    with pytest.raises(DpflError, match="There is no partition"):
        choose("partition", name, {"iid": 1})


def test_an_unknown_option_is_refused_by_the_name_of_its_owner():
    refuse_unknown_options("The model 'cnn'", {"activation": "relu"}, ["activation"])
    with pytest.raises(DpflError, match=r"^data has no key 'labels'; did you mean 'label'\?$"):
        refuse_unknown_options("data", {"labels": 1}, ["label"], "key")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, True),
        (0.5, True),
        (np.float64(2), True),
        (10**400, True),
        (True, False),
        ("1", False),
        (math.inf, False),
        (math.nan, False),
        (None, False),
    ],
)
def test_truth_values_and_numbers_that_are_not_finite_are_no_numbers(value, expected):
    assert is_number(value) is expected


def test_bounds_are_part_of_the_sentence():
    assert require_whole(3, "clients", least=1, most=3) == 3
    require_above(1e-9, "beta", bound=0)
    for value in (0, 4, 2.0, True, "2"):
        with pytest.raises(DpflError, match=f"^clients is {value!r}: give a whole number from 1"):
            require_whole(value, "clients", least=1, most=3)
    with pytest.raises(DpflError, match=r"^beta is 0: give a number above 0\.$"):
        require_above(0, "beta", bound=0)


def test_a_number_that_python_refuses_to_write_is_named_all_the_same():
    with pytest.raises(DpflError, match="clients is a number of many digits"):
        require_whole(10**5000, "clients", least=1, most=3)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({}, "The policy p.toml has no name: add it."),
        (
            {"name": "a", "limit": {}},
            "The policy p.toml has no key 'limit'; did you mean 'limits'?",
        ),
        (
            {"name": "a", "limits": {"epsilom": 1}},
            "The policy p.toml has no key 'limits.epsilom'; did you mean 'epsilon'?",
        ),
        (
            {"name": "a", "limits": {"epsilon": -1}},
            "limits.epsilon of the policy p.toml is -1: it should be greater than 0.",
        ),
        ({"name": 3}, "name of the policy p.toml is 3: it should be a valid string."),
    ],
)
def test_the_first_problem_of_pydantic_is_one_sentence(content, expected):
    assert sentence(**content) == expected


def test_a_long_value_is_cut():
    assert len(sentence(name="a", limits="x" * 10_000)) < 250


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a = ", "The policy file .* is not valid TOML"),
        (b"\xff", "The policy file .* cannot be read"),
        (b"a = " + b"9" * 5000, "The policy file .* is not valid TOML"),
        (b"a = " + b"[" * 100_000, "nested too deeply|not valid TOML"),
        (None, r"There is no policy file .*; make one\.$"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_by_its_name(tmp_path, content, expected):
    path = tmp_path / "p.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DpflError, match=expected):
        read_toml(path, "policy file", "make one.")


def test_a_word_that_is_no_choice_is_answered_with_the_choices():
    require_choice("drop", "data.label.missing", ("refuse", "drop"))
    with pytest.raises(DpflError, match=r"^missing is 'drp': did you mean 'drop'\?$"):
        require_choice("drp", "missing", ("refuse", "drop"))
    with pytest.raises(DpflError, match=r"^missing is 7: choose one of refuse, drop\.$"):
        require_choice(7, "missing", ("refuse", "drop"))


@pytest.mark.parametrize("value", ["yes", 1, None])
def test_only_true_and_false_are_truth_values(value):
    require_bool(False, "other")
    with pytest.raises(DpflError, match=r"^other is .*: give true or false\.$"):
        require_bool(value, "other")


@pytest.mark.parametrize("value", [0, 1, -0.5, math.nan, True, "0.5", None])
def test_a_share_lies_between_0_and_1(value):
    require_share(0.5, "share")
    with pytest.raises(DpflError, match=r"^share is .*: give a share of epsilon between 0 and 1"):
        require_share(value, "share", "a share of epsilon")


def test_a_wrong_value_is_quoted_in_part_and_answered():
    assert str(wrong_value("x" * 200, "name", "give less")) == f"name is {'x' * 80!r}: give less."
