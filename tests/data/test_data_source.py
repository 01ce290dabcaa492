"""A source is dealt to clients by its seed."""

import numpy as np
import pytest
import torch

from dpfl.data import DataSource, Dirichlet, Shards
from dpfl.errors import DpflError
from tests.data.samples import small


def test_split_is_deterministic_in_its_seed():
    source = DataSource(small(1000), small())
    one, same, other = (source.split(5, Dirichlet(0.5), seed) for seed in (1, 1, 2))
    assert one.sha256 == same.sha256 != other.sha256
    assert one.how == "dirichlet(beta=0.5, minimum=20)"
    assert sum(one.sizes) == 1000
    assert one.label_counts().sum() == 1000
    x, y = one.client(2)
    assert len(x) == len(y) == one.sizes[2]
    assert np.bincount(y, minlength=10).tolist() == one.label_counts()[2].tolist()


def test_public_clients_are_held_out():
    federation = DataSource(small(1000), small()).split(4, Dirichlet(0.5), seed=0, public_clients=2)
    assert len(federation.clients) == 4
    assert len(federation.public) == 2
    assert len(torch.cat([*federation.clients, *federation.public]).unique()) == 1000
    assert "clients 4 to 5 of the partition are held out as public" in federation.notes
    assert (
        federation.sha256
        != DataSource(small(1000), small()).split(6, Dirichlet(0.5), seed=0).sha256
    )


def test_a_note_names_what_was_dealt():
    def left_over(samples, shards, **whose):
        return DataSource(small(samples), None, **whose).split(4, Shards(shards, 1)).notes

    assert left_over(80, 5) == ("16 of 80 samples belong to no client",)
    assert left_over(80, 5, persons=torch.arange(80) // 2) == (
        "8 of 40 persons belong to no client",
    )


@pytest.mark.parametrize(("clients", "public"), [(0, 0), (1, -1)])
def test_no_clients_is_refused(clients, public):
    with pytest.raises(DpflError, match="at least 1 client"):
        DataSource(small(), small()).split(clients, public_clients=public)
