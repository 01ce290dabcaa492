"""A federation whose clients overlap, or do not fit each other, is refused."""

import numpy as np
import pytest
import torch

from dpfl.data import Federation
from dpfl.errors import DpflError
from tests.data.samples import small


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
