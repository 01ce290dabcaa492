"""Tensors that several processes map."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

from dpfl.engines import shared_memory
from dpfl.engines.shared_memory import PackedRows, SharedFolder


def test_tensors_come_back_until_the_folder_is_closed() -> None:
    shared = SharedFolder(100)
    mapped = shared.put(torch.arange(6.0).view(2, 3))
    assert torch.equal(mapped.open(), torch.arange(6.0).view(2, 3))
    mapped.open()[0, 0] = 7.0
    assert mapped.open()[0, 0] == 7.0
    shared.close()
    assert not Path(mapped.path).exists()


def test_rows_of_clients_come_back_as_they_were() -> None:
    shared = SharedFolder(100)
    clients = [torch.tensor([3, 1]), torch.empty(0, dtype=torch.int64), torch.tensor([5])]
    rows = PackedRows.put(shared, clients).open()
    assert all(torch.equal(one, other) for one, other in zip(rows, clients, strict=True))
    shared.close()


def test_folders_of_processes_that_ended_are_removed_and_others_stay(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    stale, own = tmp_path / f"dpfl-{ended.pid}-x", tmp_path / f"dpfl-{os.getpid()}-x"
    stale.mkdir()
    own.mkdir()
    shared_memory._remove_leftovers(tmp_path)
    assert not stale.exists()
    assert own.exists()
