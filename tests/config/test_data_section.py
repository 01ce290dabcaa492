"""`[data]`: its defaults, and which options belong to the data set and which to the partition."""

from __future__ import annotations

import pytest

from dpfl.config.data_section import DataSection
from dpfl.errors import DpflError


@pytest.mark.parametrize(
    ("content", "partition"),
    [
        ({}, "dirichlet"),
        ({"name": "mnist-sample", "task": "classes"}, "dirichlet"),
        ({"name": "patients.csv"}, "iid"),
        ({"name": "scans.npz", "task": "number"}, "iid"),
        ({"name": "shakespeare"}, "site"),
        ({"name": "patients.csv", "site": "hospital"}, "site"),
        ({"partition": "shards"}, "shards"),
    ],
)
def test_the_default_partition_follows_the_data(content, partition):
    section = DataSection.model_validate(content)
    assert section.partition == partition
    assert section.clients == (None if partition == "site" else 10)


@pytest.mark.parametrize("key", ["clients", "public_clients"])
def test_sites_are_the_clients_so_nobody_counts_them(key):
    with pytest.raises(DpflError, match="Each site of this data is a client"):
        DataSection.model_validate({"name": "shakespeare", key: 3})


def test_options_are_told_apart_by_the_data_set():
    section = DataSection.model_validate(
        {"name": "scans.npz", "task": "number", "classes": 3, "share": 0.5, "partition": "mix"}
    )
    assert section.source_options() == {"task": "number", "classes": 3}
    assert section.partition_options() == {"share": 0.5}


def test_data_with_owners_has_no_options_of_a_partition():
    section = DataSection.model_validate({"name": "shakespeare", "beta": 0.5})
    with pytest.raises(DpflError, match="The data set 'shakespeare' has no option 'beta'"):
        section.partition_options()


def test_the_partition_is_checked_before_the_data_is_read():
    section = DataSection.model_validate({"name": "/no/such.npz", "partition": "dirichlett"})
    with pytest.raises(DpflError, match="did you mean 'dirichlet'"):
        section.source()


def test_the_section_has_its_own_seed():
    one, other = (
        DataSection.model_validate({"partition": "iid", "seed": 3}).federation(seed)
        for seed in (1, 2)
    )
    assert one.pooled_digest == other.pooled_digest


def test_each_node_gets_the_share_of_one_client():
    section = DataSection.model_validate({"partition": "shards", "names": ["north", "south"]})
    sections = section.node_sections(2, seed=7)
    assert [entry["split"]["client"] for entry in sections.values()] == [0, 1]
    assert sections["north"]["split"] | {"client": 1} == sections["south"]["split"]
    assert sections["south"]["split"]["seed"] == 7
