"""A federation as its server knows it: names, declared sizes and the form of a sample. The samples
are elsewhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from dpfl.codec import canonical, encode
from dpfl.data.dataset import Dataset
from dpfl.data.federation import Federation
from dpfl.data.names import checked_names
from dpfl.errors import DpflError
from dpfl.lazy_import import torch

NODES = "nodes"
"""The word for how samples are dealt that were never in one place."""

BLANKS = 2
"""How many samples of zeros represent a client's samples, where only their form matters."""


@dataclass(frozen=True, eq=False)
class RemoteFederation(Federation):
    """A federation whose samples are at nodes. Blank samples represent them here, so everything
    that needs the form of a sample works as with a local federation.

    Attributes:
        declared_sizes: The size that each node declares, in units of the guarantee.
    """

    declared_sizes: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        form: Dataset,
        test: Dataset | None,
        names: Sequence[str],
        declared_sizes: Sequence[int],
        unit: str | None = None,
    ) -> RemoteFederation:
        """Describes nodes that have samples of one form.

        Args:
            form: Samples of that form, such as a public data set. None of them is kept.
            test: A public test set, or None.
            names: The names of the nodes.
            declared_sizes: The size that each node declares.
            unit: "person" where sizes count persons; otherwise they count samples.

        Returns:
            The federation.

        Raises:
            DpflError: A size is missing or below 1, or a name is no name of a client.
        """
        if len(names) != len(declared_sizes) or any(size < 1 for size in declared_sizes):
            raise DpflError(
                "A node declares how many samples it has: a whole number of at least 1 each."
            )
        checked_names(names, len(names))
        rows, label = BLANKS * len(names), form.task.examples(*form.shape[:1])[:1]
        y = label.expand(rows, *label.shape[1:]).clone()
        train = replace(form, x=form.x.new_zeros(rows, *form.shape), y=y)
        clients = tuple(torch.arange(rows).split(BLANKS))
        return cls(
            train,
            test,
            clients,
            how=NODES,
            names=tuple(names),
            declared_sizes=tuple(declared_sizes),
            persons=torch.arange(rows) if unit == "person" else None,
        )

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return self.declared_sizes

    def count_units(
        self, unit: str, parts: Sequence[torch.Tensor] | None = None
    ) -> tuple[int, ...]:
        """Returns the sizes that the nodes declared, in the unit that the run proposes."""
        return self.declared_sizes if parts is None else tuple(map(len, parts))

    def by_person(self, parts: Sequence[torch.Tensor]) -> tuple[str, ...]:
        return ()

    @cached_property
    def client_digests(self) -> tuple[str, ...]:
        """Empty: the server has no digests of nodes' data."""
        return ()

    @cached_property
    def pooled_digest(self) -> str:
        return self.sha256

    @cached_property
    def sha256(self) -> str:
        schema = self.train.schema.to_json() if self.train.schema else ""
        test = self.test.sha256 if self.test else ""
        form = encode((self.names, self.declared_sizes, self.shape, self.task, schema, test))
        return hashlib.sha256(canonical(form)).hexdigest()
