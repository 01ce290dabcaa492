"""No bare epsilon anywhere: a statement names its unit, neighbours, delta, adversary and
accountant.
"""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfl.privacy import PrivacyStatement
from dpfl.privacy.statement import figure, rounded_up

KEYS = {
    "unit",
    "neighbours",
    "delta",
    "adversary",
    "accountant",
    "proven",
    "claimed",
    "claim",
    "unaccounted",
    "per_client",
    "releases",
    "stated",
    "assumptions",
    "noise",
    "warnings",
    "used",
    "most",
    "asked",
}


def statement(**changes):
    fields = {
        "unit": "sample",
        "neighbours": "add/remove one",
        "delta": 1e-6,
        "adversary": "the server and the public",
        "accountant": "pld",
        "proven": 1.3571,
        "claimed": 2.005,
        "claim": "Theorem 2 of the paper",
        "per_client": {"0": 1.3571, "1": 1.2},
        "releases": {"Gaussian noise, multiplier 1.1": 317},
        "assumptions": ("nobody knows the seed",),
    }
    return PrivacyStatement(**(fields | changes))


def test_the_json_has_these_keys_and_no_others():
    read = json.loads(statement().to_json())
    assert set(read) == KEYS
    assert read["proven"] == 1.3571
    assert read["claimed"] == 2.005
    assert read["per_client"] == {"0": 1.3571, "1": 1.2}
    assert read["delta"] == 1e-6
    assert read["releases"] == {"Gaussian noise, multiplier 1.1": 317}


def test_infinity_is_the_word_unbounded_in_json_and_in_text():
    unbounded = statement(
        proven=math.inf,
        claimed=math.inf,
        per_client={"0": math.inf, "1": 1.0},
        unaccounted=("exact sizes",),
    )
    read = json.loads(unbounded.to_json())
    assert read["proven"] == read["claimed"] == read["per_client"]["0"] == "unbounded"
    assert read["per_client"]["1"] == 1.0
    assert "Infinity" not in unbounded.to_json()
    lines = dict(unbounded.lines())
    assert lines["proven"].startswith("unbounded")
    assert lines["claimed"].startswith("unbounded")
    assert "inf" not in str(unbounded).split()
    assert lines["not accounted for"] == "exact sizes"


def test_what_is_not_claimed_is_null_in_json_and_nothing_in_text():
    silent = statement(claimed=None, claim="")
    assert json.loads(silent.to_json())["claimed"] is None
    assert dict(silent.lines())["claimed"] == "nothing"
    assert "2.005" not in str(silent)
    assert (
        dict(statement(claimed=None, claim="no privacy is claimed").lines())["claimed"]
        == "nothing: no privacy is claimed"
    )


def test_the_text_names_unit_neighbours_delta_adversary_and_accountant():
    text = str(statement())
    for part in (
        "one sample",
        "add/remove one",
        "delta 1e-06",
        "by pld",
        "the server and the public",
        "1.3571",
        "317 x",
    ):
        assert part in text


@pytest.mark.parametrize("unit", ["sample", "client"])
@pytest.mark.parametrize("neighbours", ["add/remove one", "replace one"])
def test_every_unit_and_neighbour_is_said(unit, neighbours):
    assert (
        dict(statement(unit=unit, neighbours=neighbours).lines())["unit"]
        == f"one {unit}; neighbours: {neighbours}"
    )


def test_a_claimed_epsilon_stands_only_in_a_line_that_says_claimed():
    found = [line for line in str(statement(claimed=7.7777)).splitlines() if "7.7777" in line]
    assert len(found) == 1
    assert found[0].startswith("claimed")
    assert "Theorem 2 of the paper" in found[0]


def test_a_claimed_epsilon_never_stands_without_the_proven_one_before_it():
    headings = [heading for heading, _ in statement().lines()]
    assert headings[:2] == ["proven", "claimed"]


def test_the_spread_over_clients_is_shown():
    assert "clients 1.2000 to 1.3571" in dict(statement().lines())["proven"]
    assert "clients" not in dict(statement(per_client={"every client": 1.3571}).lines())["proven"]


def test_a_run_that_protects_nobody_has_no_unit():
    lines = dict(
        statement(unit="none", proven=math.inf, claimed=None, unaccounted=("every update",)).lines()
    )
    assert "unit" not in lines
    assert lines["not accounted for"] == "every update"


def test_assumptions_and_unaccounted_releases_have_a_line_each():
    both = statement(assumptions=("one", "two"), unaccounted=("three", "four"))
    assert [text for heading, text in both.lines() if heading == "assumes"] == ["one", "two"]
    assert [text for heading, text in both.lines() if heading == "not accounted for"] == [
        "three",
        "four",
    ]


def test_what_was_used_stands_beside_what_is_proven_where_it_is_less():
    less = statement(used=1.1, most={"Gaussian noise, multiplier 1.1": 400})
    assert json.loads(less.to_json())["used"] == 1.1
    assert dict(less.lines())["used"].startswith("epsilon 1.1000")
    assert dict(less.lines())["releases"] == "317 (at most 400) x Gaussian noise, multiplier 1.1"
    assert "used" not in dict(statement(used=1.3571).lines())


def test_a_warning_is_part_of_the_statement():
    warned = statement(warnings=("delta 0.5 is not below 1/100",))
    assert json.loads(warned.to_json())["warnings"] == ["delta 0.5 is not below 1/100"]
    assert dict(warned.lines())["warning"] == "delta 0.5 is not below 1/100"
    assert "warning" not in dict(statement().lines())


@pytest.mark.parametrize("noise", ["floating-point", "secure"])
def test_a_statement_says_which_noise_it_was(noise):
    assert json.loads(statement(noise=noise).to_json())["noise"] == noise
    assert dict(statement(noise=noise).lines())["noise"].startswith(noise)
    assert "noise" not in dict(statement(noise="none").lines())


@given(st.floats(0, 1e4))
def test_a_figure_in_json_is_epsilon_to_six_places(epsilon):
    assert figure(epsilon) == pytest.approx(epsilon, abs=1e-6)


def test_figures_that_are_no_numbers():
    assert figure(None) is None
    assert figure(math.inf) == "unbounded"


@given(st.floats(0, 1e4), st.integers(1, 6))
def test_a_figure_with_fewer_digits_says_no_less_and_little_more(
    epsilon: float, digits: int
) -> None:
    shown = rounded_up(epsilon, digits)
    assert epsilon - 1e-9 <= shown <= epsilon + 10.0**-digits + 1e-9
