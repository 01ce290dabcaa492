"""Partitions by their names, and back."""

import numpy as np
import pytest

from dpfl.data import (
    IID,
    Dirichlet,
    ExplicitPartition,
    LabelSkew,
    Mix,
    Shards,
    Unequal,
)
from dpfl.data.partition import describe, parse
from dpfl.errors import DpflError


def test_parse_knows_every_name():
    assert parse("iid") == IID()
    assert parse("dirichlet", beta=0.5) == Dirichlet(0.5)
    assert parse("shards", shards=200) == Shards(200)
    assert parse("label-skew", major=3) == LabelSkew(3)
    assert parse("unequal", ratio=2) == Unequal(2)
    assert parse("mapping", lists=[[0]]) == ExplicitPartition([[0]])
    assert parse("mix", share=0.5, beta=0.1) == Mix(0.5, IID(), Dirichlet(0.1))
    assert parse("mix", share=0.5, skewed="shards", shards=80) == Mix(0.5, IID(), Shards(80))


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("dirichlett", {}, "did you mean 'dirichlet'"),
        ("zzz", {}, "choose one of iid, dirichlet"),
        ("dirichlet", {"betta": 1}, "did you mean 'beta'"),
        ("iid", {"beta": 1}, "there are none"),
        ("dirichlet", {}, "needs beta"),
        ("dirichlet", {"beta": 0}, "above 0"),
        ("dirichlet", {"beta": "x"}, "beta is 'x'"),
        ("dirichlet", {"beta": 1, "minimum": 2.5}, "whole number"),
        ("mix", {"share": 2}, "from 0 to 1"),
        ("mix", {"share": 0.5, "betta": 1}, "did you mean 'beta'"),
        ("unequal", {"ratio": 0.5}, "1 or more"),
        ("shards", {"shards": True}, "whole number"),
    ],
)
def test_parse_refuses_with_a_suggestion(name, options, said):
    with pytest.raises(DpflError, match=said):
        parse(name, **options)


def halves(labels, clients, rng):
    """A partition of a user's own."""
    return np.array_split(np.arange(len(labels)), clients), ()


def test_descriptions():
    assert describe(IID()) == "iid"
    assert describe(Mix(0.5)) == "mix(share=0.5, iid=iid, skewed=dirichlet(beta=0.05, minimum=20))"
    assert describe(ExplicitPartition([[0], [1]])) == "mapping(2 lists)"
    assert describe(ExplicitPartition("lists.json")) == "mapping(lists.json)"
    assert describe(halves) == "halves"
