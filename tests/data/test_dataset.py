import math

import numpy as np
import pytest
import torch

from dpfl.data import Dataset, DataSource, Dirichlet, Federation, tensors
from dpfl.errors import DpflError


def small(count: int = 100, classes: int = 10) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    return Dataset(
        "small",
        torch.randn(count, 1, 4, 4, generator=generator),
        torch.arange(count) % classes,
        classes,
    )


def test_a_dataset_knows_its_length_shape_and_hash():
    one, same = small(), small()
    assert len(one) == 100
    assert one.shape == (1, 4, 4)
    assert one.sha256 == same.sha256
    assert len(one.sha256) == 64
    changed = Dataset("small", one.x, one.y.roll(1), 10)
    assert changed.sha256 != one.sha256


@pytest.mark.parametrize(
    ("x", "y", "said"),
    [
        (torch.zeros(3, 2), torch.zeros(2, dtype=torch.int64), "one label a sample"),
        (torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64), "empty"),
        (torch.full((2, 2), float("nan")), torch.zeros(2, dtype=torch.int64), "not finite"),
        (
            torch.tensor([[0.0, math.inf], [-math.inf, 0.0]]),
            torch.zeros(2, dtype=torch.int64),
            "not finite",
        ),
        (torch.zeros(2, 2), torch.tensor([0, 2]), "run from 0 to 2"),
        (torch.zeros(2, 2), torch.tensor([0, -1]), "run from -1"),
        (torch.zeros(2, 2, dtype=torch.float64), torch.tensor([0, 1]), "float64"),
    ],
)
def test_a_wrong_dataset_is_refused(x, y, said):
    with pytest.raises(DpflError, match=said):
        Dataset("wrong", x, y, 2)


def test_finite_values_whose_sum_is_not_are_taken():
    assert len(Dataset("large", torch.full((2, 2), 3e38), torch.tensor([0, 1]), 2)) == 2


def test_tensors_converts_arrays_of_any_numeric_type():
    x = np.array([[0, 255], [51, 102]], dtype=np.uint8)
    source = tensors(x, np.array([0.0, 1.0]), x, np.array([0, 2], dtype=np.int8))
    assert source.train.x.tolist() == [[0, 1], [pytest.approx(0.2), pytest.approx(0.4)]]
    assert source.train.classes == source.test.classes == 3
    with pytest.raises(DpflError, match="whole numbers"):
        tensors(x, np.array([0.5, 1.0]), x, np.array([0, 1]))
    with pytest.raises(DpflError, match="else than numbers"):
        tensors(np.array([["a"], ["b"]]), np.array([0, 1]), x, np.array([0, 1]))


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


@pytest.mark.parametrize(("clients", "public"), [(0, 0), (1, -1)])
def test_no_clients_is_refused(clients, public):
    with pytest.raises(DpflError, match="at least 1 client"):
        DataSource(small(), small()).split(clients, public_clients=public)


@pytest.mark.parametrize(
    ("clients", "said"),
    [
        ([[0, 1], []], "no images at client 1"),
        ([[0, 1], [2, 3], [5]], "only one image at client 2"),
        ([[0, 1], [1, 2]], "client 1 occur twice"),
        ([[0, 0]], "client 0 occur twice"),
        ([[0, 100]], "leave the range 0 to 99"),
        ([], "no clients"),
    ],
)
def test_a_wrong_federation_is_refused(clients, said):
    with pytest.raises(DpflError, match=said):
        Federation(
            small(), small(), tuple(torch.tensor(part, dtype=torch.int64) for part in clients)
        )


def test_public_images_that_a_client_holds_are_refused():
    with pytest.raises(DpflError, match="public client 0 occur twice"):
        Federation(small(), small(), (torch.tensor([0, 1]),), (torch.tensor([1, 2]),))


def test_training_and_test_sets_must_agree():
    with pytest.raises(DpflError, match="same shape and classes"):
        Federation(small(), small(classes=5), (torch.tensor([0, 1]),))


def test_a_federation_of_ones_own_tensors():
    parts = [(torch.randn(3, 2), torch.tensor([0, 1, 1])), (np.ones((2, 2)), np.array([2, 0]))]
    federation = Federation.from_tensors(
        parts, (torch.zeros(4, 2), torch.tensor([0, 1, 2, 3])), name="mine"
    )
    assert federation.sizes == (3, 2)
    assert federation.classes == 4
    assert federation.shape == (2,)
    assert torch.equal(federation.client(0)[0], parts[0][0])
    assert federation.client(1)[1].tolist() == [2, 0]


def test_ones_own_client_with_too_little_or_odd_data_is_named():
    test = (torch.zeros(2, 2), torch.tensor([0, 1]))
    whole = (torch.zeros(2, 2), torch.tensor([0, 1]))
    with pytest.raises(DpflError, match="only one image at client 1"):
        Federation.from_tensors([whole, (torch.zeros(1, 2), torch.tensor([0]))], test)
    with pytest.raises(DpflError, match="client 1' is empty"):
        Federation.from_tensors([whole, (torch.zeros(0, 2), torch.zeros(0))], test)
    with pytest.raises(DpflError, match="client 1' do not have"):
        Federation.from_tensors([whole, (torch.zeros(2, 3), torch.tensor([0, 1]))], test)
