"""Flat keywords of `dpfl.train` work for one version, and say where they went."""

import warnings

import pytest

import dpfl
from dpfl.run.flat_options import HOMES, accepts_flat_options, group_flat_options


@accepts_flat_options
def groups_of(**groups):
    return groups


def test_flat_keywords_go_into_their_groups_with_one_warning():
    with pytest.warns(DeprecationWarning, match="go in version 0.3") as caught:
        groups = groups_of(seed=3, accountant="rdp", evaluate_every=2, aggregation="secure")
    assert len(caught) == 1
    assert "execution=dpfl.Execution(seed=...)" in str(caught[0].message)
    assert caught[0].filename == __file__
    assert groups == {
        "privacy": dpfl.Privacy(accountant="rdp"),
        "aggregation": dpfl.Aggregation("secure"),
        "evaluation": dpfl.Evaluation(every=2),
        "execution": dpfl.Execution(seed=3),
    }


def test_groups_pass_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert groups_of(execution=dpfl.Execution(seed=1)) == {"execution": dpfl.Execution(seed=1)}


def test_a_flat_keyword_changes_the_group_beside_it():
    groups, _ = group_flat_options({"seed": 4, "execution": dpfl.Execution(workers=2)})
    assert groups == {"execution": dpfl.Execution(seed=4, workers=2)}


def test_every_old_keyword_has_a_field():
    values = {"entropy": "system", "noise": "plain", "survivors": 2, "colluders": 1}
    flat = {name: values.get(name, True if name == "masks" else None) for name in HOMES}
    flat |= {"seed": 0, "aggregation": "secure", "arithmetic": "exact", "resume": False}
    groups, _ = group_flat_options(flat)
    assert groups.keys() == {"privacy", "aggregation", "evaluation", "execution"}
