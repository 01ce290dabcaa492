"""What a partition says of itself before it deals."""

import pytest

from dpfl.data import IID, Dirichlet, Mix, Shards, Unequal
from dpfl.data.explicit_partition import ExplicitPartition
from dpfl.data.partition_traits import kind_of


@pytest.mark.parametrize(
    ("how", "by_class"),
    [
        (IID(), False),
        (Unequal(), False),
        (Dirichlet(0.5), True),
        (Shards(2), True),
        (Mix(0.5), True),
        (Mix(0.5, skewed=IID()), False),
        (Mix(0.5, iid=Shards(2), skewed=IID()), True),
    ],
)
def test_a_partition_says_whether_it_needs_classes(how, by_class):
    assert kind_of(how).deals_by_class == by_class
    assert not kind_of(how).assigns_rows
    assert kind_of(how).names == ()


def test_a_function_has_no_traits():
    kind = kind_of(lambda labels, clients, rng: ([], ()))
    assert (kind.deals_by_class, kind.assigns_rows, kind.names) == (False, False, ())


def test_lists_of_the_user_say_whose_every_row_is():
    kind = kind_of(ExplicitPartition({"a": [0], "b": [1]}))
    assert (kind.deals_by_class, kind.assigns_rows, kind.names) == (False, True, ("a", "b"))
