"""A system is described by its own docstrings, options and parts."""

from __future__ import annotations

import pytest

from dpfl.algorithms import ALGORITHMS, Algorithm, factory_of, fedavg, from_name, options_of
from dpfl.algorithms.catalog import describe_all, describe_one, guarantee, option_meanings


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_docstring_of_a_factory_explains_exactly_its_options(name: str) -> None:
    meanings = option_meanings(factory_of(name))
    assert list(meanings) == list(options_of(name))
    assert all(5 < len(text) < 150 for text in meanings.values())


def test_a_meaning_over_several_lines_is_one_line() -> None:
    def factory(first: int, second: int) -> Algorithm:
        """Builds something.

        Args:
            first: One line
                and another.

            second: The end.

        Returns:
            third: Not an option.
        """
        return fedavg()

    meanings = option_meanings(factory)
    assert meanings == {"first": "One line and another.", "second": "The end."}


def test_a_factory_without_a_docstring_has_options_without_meanings() -> None:
    assert option_meanings(lambda rate: fedavg(rate=rate)) == {}


def test_every_system_names_its_paper_and_says_what_is_proven() -> None:
    for system in describe_all():
        assert system["paper"]
        assert set(system["proven"]) == set(system["variants"])
        assert "without noise without" not in " ".join(system["proven"].values())


def test_one_system_in_full_has_options_with_defaults_and_parts() -> None:
    system = describe_one("fedavg-dp")
    assert system["options"]["clip"] == {
        "type": "float",
        "default": 1.0,
        "meaning": "Largest L2 norm C of a sample's gradient.",
    }
    assert system["parts"]["samples"].startswith("Release(")
    assert "post-processing" in system["text"]


def test_the_guarantee_of_a_leaking_system_names_the_leak() -> None:
    assert guarantee(from_name("ali-dpfl", variant="published")).startswith("nothing: it releases")
    assert guarantee(fedavg()) == "nothing: no noise"
