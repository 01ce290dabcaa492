"""Clients that are described, not held."""

from __future__ import annotations

import pytest
import torch

import dpfl
from dpfl.config.experiment import parse
from dpfl.config.settings import with_settings
from dpfl.data import Population, RandomClients
from dpfl.errors import DpflError


@pytest.fixture(scope="module")
def source():
    return dpfl.data.sample()


def test_a_client_is_the_same_whenever_it_is_asked_for(source):
    first, again = (
        source.split(clients=1_000_000, how=RandomClients(50, beta=0.5), seed=3) for _ in range(2)
    )
    for client in (0, 17, 999_999):
        assert torch.equal(first.clients[client], again.clients[client])
    assert not torch.equal(first.clients[0], first.clients[1])
    assert not torch.equal(
        first.clients[0],
        source.split(clients=10, how=RandomClients(50, beta=0.5), seed=4).clients[0],
    )


def test_every_client_holds_distinct_samples_of_the_training_set(source):
    federation = source.split(clients=500, how=RandomClients(50), seed=0)
    for client in range(0, 500, 50):
        rows = federation.clients[client]
        assert len(rows) == 50
        assert len(torch.unique(rows)) == 50
        assert 0 <= int(rows.min()) <= int(rows.max()) < len(federation.train)


def test_a_small_beta_means_few_classes_a_client(source):
    skewed = source.split(clients=200, how=RandomClients(50, beta=0.05), seed=0).label_counts()
    even = source.split(clients=200, how=RandomClients(50), seed=0).label_counts()
    assert (skewed > 0).sum(1).mean() < 4 < 8 < (even > 0).sum(1).mean()


def test_a_million_clients_are_described_by_their_number(source):
    federation = source.split(clients=1_000_000, how=RandomClients(50), seed=0)
    assert isinstance(federation.clients, Population)
    assert len(federation.sizes) == 1_000_000
    assert federation.label_counts().shape == (1000, 10)
    assert federation.sha256 != source.split(clients=999_999, how=RandomClients(50), seed=0).sha256


def test_a_population_trains_at_client_level_and_is_refused_at_sample_level(source, tmp_path):
    federation = source.split(clients=100_000, how=RandomClients(20), seed=0)
    budget = dpfl.Budget(delta=1e-6, rounds=3)
    system = dpfl.algorithms.dp_fedavg(cohort=10, noise_multiplier=1.0, tau=2, batch_size=10)
    result = dpfl.train(
        dpfl.models.mlp(hidden=8),
        federation,
        system,
        budget,
        execution=dpfl.Execution(out=tmp_path / "clients", workers=2),
    )
    assert result.rounds == 3
    assert result.privacy.unit == "client"
    with pytest.raises(DpflError, match="may share samples"):
        dpfl.train(
            dpfl.models.mlp(hidden=8),
            federation,
            dpfl.algorithms.fedavg_dp(noise_multiplier=1.0),
            budget,
            execution=dpfl.Execution(out=tmp_path / "s"),
        )
    with pytest.raises(DpflError, match="none of them can be public"):
        source.split(clients=10, how=RandomClients(20), public_clients=2)


SKEW = (230, 230, 5, 5, 5, 5, 5, 5, 5, 5)


def test_labels_are_held_in_the_proportions_that_are_given(source) -> None:
    """The clipping paper's: of 100 images two classes have 46 each and eight have one, and which do
    differs by client.
    """
    counts = source.split(clients=40, how=RandomClients(100, labels=SKEW), seed=0).label_counts()
    assert all(sorted(row) == [1] * 8 + [46, 46] for row in counts.tolist())
    assert len({tuple(row) for row in counts.tolist()}) > 10


def test_labels_come_from_one_setting(source) -> None:
    skew = "data.labels=[230,230,5,5,5,5,5,5,5,5]"
    made = parse(
        with_settings({"data": {"partition": "drawn", "images": 100, "clients": 5}}, [skew])
    ).federation()
    assert sorted(made.label_counts()[0].tolist()) == [1] * 8 + [46, 46]


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"labels": "2"}, "list"),
        ({"labels": (0,) * 10}, "list"),
        ({"labels": SKEW, "beta": 1.0}, "one of"),
    ],
)
def test_labels_that_mean_nothing_are_refused(wrong: dict[str, object], match: str) -> None:
    with pytest.raises(DpflError, match=match):
        RandomClients(100, **wrong)


def test_a_number_for_each_class_is_needed(source) -> None:
    with pytest.raises(DpflError, match="10 classes"):
        source.split(clients=5, how=RandomClients(100, labels=(1, 2)), seed=0).clients[0]


def test_ledgers_know_a_population_by_a_text_that_never_changes(source) -> None:
    """Ledgers are bound to it: another text would make them refuse the data that they were opened
    for.
    """
    population = source.split(clients=7, how=RandomClients(images=5, beta=0.5), seed=3).clients
    assert (
        population.canonical_text
        == "Population(how=Drawn(images=5, beta=0.5, labels=None), clients=range(0, 7), seed=3)"
    )
