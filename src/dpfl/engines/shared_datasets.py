"""The data of all clients in shared memory: a small record that worker processes open."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from dpfl.client.dataset import ClientDatasets
from dpfl.engines.shared_memory import MappedTensor, PackedRows, SharedFolder


@dataclass(frozen=True)
class SharedDatasets:
    """The places of the tensors of `ClientDatasets` in shared memory.

    Attributes:
        data: The data without its tensors. A population that is described stays as it is.
        x: The samples.
        y: The labels.
        unit_ids: The persons of the rows, if units are persons.
        rows: The rows that clients train on; None for a described population.
        evaluation_rows: The rows that clients measure on; None for a described population.
    """

    data: ClientDatasets
    x: MappedTensor
    y: MappedTensor
    unit_ids: MappedTensor | None
    rows: PackedRows | None
    evaluation_rows: PackedRows | None

    @staticmethod
    def bytes_of(data: ClientDatasets) -> int:
        """Counts the bytes of shared memory that the data takes.

        Args:
            data: The data of all clients.

        Returns:
            The number of bytes.
        """
        tensors = [tensor for tensor in (data.x, data.y, data.unit_ids) if tensor is not None]
        row_numbers = 8 * len(data.x) if _is_listed(data) else 0
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors) + row_numbers

    @classmethod
    def put(cls, folder: SharedFolder, data: ClientDatasets) -> SharedDatasets:
        """Copies the data into shared memory.

        Args:
            folder: Where the tensors go.
            data: The data of all clients.

        Returns:
            Where the tensors are.
        """
        is_list = _is_listed(data)
        bare = replace(
            data,
            x=torch.empty(0),
            y=torch.empty(0),
            unit_ids=None,
            rows=() if is_list else data.rows,
            evaluation_rows=(),
        )
        return cls(
            bare,
            folder.put(data.x),
            folder.put(data.y),
            None if data.unit_ids is None else folder.put(data.unit_ids),
            PackedRows.put(folder, data.rows) if is_list else None,
            PackedRows.put(folder, data.evaluation_rows) if data.evaluation_rows else None,
        )

    def open(self) -> ClientDatasets:
        """Maps the tensors into this process.

        Returns:
            The data of all clients.
        """
        return replace(
            self.data,
            x=self.x.open(),
            y=self.y.open(),
            unit_ids=self.unit_ids.open() if self.unit_ids else None,
            rows=self.rows.open() if self.rows else self.data.rows,
            evaluation_rows=self.evaluation_rows.open() if self.evaluation_rows else (),
        )


def _is_listed(data: ClientDatasets) -> bool:
    """Says whether the rows are lists of numbers, and not computed on demand."""
    return isinstance(data.rows, (tuple, list))
