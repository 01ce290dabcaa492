"""The user's own partition: lists of indices, in Python or in a file."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpfl.data.partition_kinds import Notes, Parts, with_leftover
from dpfl.data.partition_traits import PartitionKind
from dpfl.errors import DpflError


@dataclass(frozen=True)
class ExplicitPartition(PartitionKind):
    """Gives each client the rows of one list of indices.

    Attributes:
        lists: The lists, by the clients' names or in turn; or a .json file of lists or a .npz file
            of arrays.
    """

    assigns_rows = True

    lists: Sequence[Sequence[int]] | dict[str, Sequence[int]] | str | Path

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the clients, where lists have names."""
        lists = self._content()
        return tuple(map(str, lists)) if isinstance(lists, dict) else ()

    def _content(self) -> Any:
        return _read_lists(Path(self.lists)) if isinstance(self.lists, str | Path) else self.lists

    def __call__(
        self, labels: np.ndarray, clients: int, rng: np.random.Generator
    ) -> tuple[Parts, Notes]:
        """Checks the lists.

        Args:
            labels: The label of each sample.
            clients: The number of clients.
            rng: Not used.

        Returns:
            The rows of each client, and a note on rows that belong to nobody.

        Raises:
            DpflError: The lists are not disjoint, leave the range, or are not one for each client.
        """
        content = self._content()
        lists = list(content.values() if isinstance(content, dict) else content)
        if len(lists) != clients:
            raise DpflError(
                f"The mapping has {len(lists)} lists and {clients} clients were asked for: make "
                "them agree."
            )
        parts = [_as_indices(number, indices, len(labels)) for number, indices in enumerate(lists)]
        together = np.concatenate(parts)
        if len(np.unique(together)) < len(together):
            raise DpflError(
                "Some indices occur twice in the mapping: every image must have one owner."
            )
        return with_leftover(parts, len(labels))

    def __str__(self) -> str:
        return (
            f"mapping({self.lists})"
            if isinstance(self.lists, str | Path)
            else f"mapping({len(self.lists)} lists)"
        )


def _read_lists(path: Path) -> list[Any] | dict[str, Any]:
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as file:
                return [file[key] for key in file.files]
        content = json.loads(path.read_text())
    except (
        OSError,
        ValueError,
        EOFError,
        TypeError,
        AttributeError,
        RecursionError,
        zipfile.BadZipFile,
    ) as error:
        raise DpflError(
            f"The mapping {path} cannot be read ({error}): give a JSON or .npz file of lists."
        ) from error
    if not isinstance(content, list | dict):
        raise DpflError(
            f"The mapping {path} holds no lists: give a list of index lists, one per client."
        )
    return content


def _as_indices(number: int, indices: Any, total: int) -> np.ndarray:
    try:
        part = np.asarray(indices)
    except ValueError as error:
        raise DpflError(
            f"List {number} of the mapping is not one row of numbers: correct it."
        ) from error
    if part.size == 0:
        return np.zeros(0, dtype=np.int64)
    if part.ndim != 1 or not np.issubdtype(part.dtype, np.integer):
        raise DpflError(
            f"List {number} of the mapping is not one row of whole numbers: correct it."
        )
    if part.min() < 0 or part.max() >= total:
        raise DpflError(
            f"List {number} of the mapping leaves the range 0 to {total - 1}: correct it."
        )
    return part.astype(np.int64)
