"""Sections refuse what they do not know, or pass it to the part that they name."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from dpfl.config.sections import BudgetSection, MetricsSection, ModelSection, PrivacySection
from dpfl.errors import DpflError


def test_an_open_section_keeps_the_options_of_its_part():
    assert ModelSection(name="mlp", hidden=32).options() == {"hidden": 32}


@pytest.mark.parametrize(
    "content", [{"epsilonn": 1.0}, {"rounds": "5"}, {"epsilon": float("inf")}, {"rounds": True}]
)
def test_a_strict_section_refuses_unknown_keys_and_other_types(content):
    with pytest.raises(ValidationError):
        BudgetSection(**content)


def test_counts_of_a_secure_sum_have_bounds():
    assert PrivacySection(survivors=1, colluders=0)
    for content in ({"survivors": 0}, {"survivors": 101}, {"colluders": -1}):
        with pytest.raises(ValidationError):
            PrivacySection(**content)


def test_a_private_metric_has_to_be_asked_for():
    assert MetricsSection().part() is None
    assert MetricsSection(private=True, share=0.1).part().share == 0.1
    with pytest.raises(DpflError, match=r"metrics\.share has no effect without a private metric"):
        MetricsSection(share=0.1).part()
