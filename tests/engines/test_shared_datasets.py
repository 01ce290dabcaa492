"""The data of all clients in memory that processes share."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from dpfl.client.dataset import ClientDatasets
from dpfl.engines.shared_datasets import SharedDatasets
from dpfl.engines.shared_memory import SharedFolder

X, Y = torch.arange(12.0).view(6, 2), torch.arange(6)
ROWS = (torch.tensor([4, 0]), torch.tensor([1, 2, 5]))


class Halves:
    """The rows of two clients, found when they are asked for."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, client: int) -> Tensor:
        return torch.arange(*list(pairwise((0, 3, 6)))[client])


@pytest.fixture
def folder() -> Iterator[SharedFolder]:
    shared = SharedFolder(1000)
    yield shared
    shared.close()


def test_everything_comes_back_in_another_process_s_record(folder: SharedFolder) -> None:
    data = ClientDatasets(
        X,
        Y,
        ROWS,
        (2, 3),
        torch.arange(6) // 2,
        evaluation_rows=ROWS[::-1],
        evaluation_sizes=(3, 2),
    )
    record = pickle.dumps(SharedDatasets.put(folder, data))
    opened = pickle.loads(record).open()
    assert torch.equal(opened.x, X)
    assert torch.equal(opened.y, Y)
    assert torch.equal(opened.unit_ids, data.unit_ids)
    for name in ("rows", "evaluation_rows"):
        pairs = zip(getattr(opened, name), getattr(data, name), strict=True)
        assert all(torch.equal(one, other) for one, other in pairs)
    assert opened.declared_sizes == (2, 3)


def test_the_record_holds_no_tensors(folder: SharedFolder) -> None:
    large = ClientDatasets(torch.zeros(10_000, 2), torch.zeros(10_000), ROWS, (2, 3))
    assert len(pickle.dumps(SharedDatasets.put(folder, large))) < 5_000


def test_rows_that_are_described_stay_as_they_are(folder: SharedFolder) -> None:
    shared = SharedDatasets.put(folder, ClientDatasets(X, Y, Halves(), (3, 3)))
    assert shared.rows is None
    assert torch.equal(shared.open().rows[1], torch.tensor([3, 4, 5]))


def test_the_bytes_are_those_of_tensors_and_listed_rows() -> None:
    tensors = 12 * 4 + 6 * 8
    assert SharedDatasets.bytes_of(ClientDatasets(X, Y, Halves(), (3, 3))) == tensors
    assert SharedDatasets.bytes_of(ClientDatasets(X, Y, ROWS, (2, 3))) == tensors + 6 * 8
