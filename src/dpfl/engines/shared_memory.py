"""Tensors in files that several processes map: no copies, and no pickling of their contents."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

import torch
from torch import Tensor


@dataclass(frozen=True)
class MappedTensor:
    """A tensor in a mapped file. This description is small enough to send to another process.

    Attributes:
        path: The file.
        shape: The tensor's shape.
        dtype: The type of its numbers.
    """

    path: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    def open(self) -> Tensor:
        """Maps the tensor.

        Returns:
            A tensor whose numbers all processes share.
        """
        size = torch.Size(self.shape).numel()
        return torch.from_file(self.path, shared=True, size=size, dtype=self.dtype).view(self.shape)


class SharedFolder:
    """A folder of mapped tensors, in memory where there is room and otherwise on disk.

    The tensors live as long as the folder.
    """

    def __init__(self, bytes_needed: int) -> None:
        memory = Path("/dev/shm")
        roomy = memory.is_dir() and shutil.disk_usage(memory).free > 2 * bytes_needed
        place = memory if roomy else Path(tempfile.gettempdir())
        _remove_leftovers(place)
        self._folder = tempfile.TemporaryDirectory(prefix=f"dpfl-{os.getpid()}-", dir=place)
        self._count = 0

    def put(self, tensor: Tensor) -> MappedTensor:
        """Copies a tensor into the folder.

        Args:
            tensor: The tensor.

        Returns:
            Where it is.
        """
        self._count += 1
        path = Path(self._folder.name) / str(self._count)
        tensor_map = MappedTensor(str(path), tuple(tensor.shape), tensor.dtype)
        with path.open("wb") as file:
            file.truncate(tensor.numel() * tensor.element_size())
        tensor_map.open().copy_(tensor)
        return tensor_map

    def close(self) -> None:
        """Deletes the folder."""
        self._folder.cleanup()


@dataclass(frozen=True)
class PackedRows:
    """The row numbers of many clients, one after the other in one mapped tensor.

    Attributes:
        rows: The row numbers of all clients.
        ends: Where each client's rows begin and end.
    """

    rows: MappedTensor
    ends: MappedTensor

    @classmethod
    def put(cls, folder: SharedFolder, clients: Sequence[Tensor]) -> PackedRows:
        """Copies the row numbers of clients into a folder.

        Args:
            folder: The folder.
            clients: The row numbers of each client.

        Returns:
            Where they are.
        """
        ends = torch.tensor([0, *accumulate(len(rows) for rows in clients)])
        return cls(folder.put(torch.cat([ends[:0], *clients])), folder.put(ends))

    def open(self) -> Sequence[Tensor]:
        """Maps the row numbers.

        Returns:
            The row numbers of each client.
        """
        ends = self.ends.open().tolist()
        rows = self.rows.open()
        return [rows[start:end] for start, end in pairwise(ends)]


def _remove_leftovers(place: Path) -> None:
    """Deletes the folders that processes left behind when they were killed."""
    for folder in place.glob("dpfl-*-*"):
        process = folder.name.split("-")[1]
        if process.isdigit() and not _alive(int(process)):
            shutil.rmtree(folder, ignore_errors=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
