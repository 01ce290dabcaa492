"""The section `[data]` of an experiment: which data set, and how its rows are dealt to clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from dpfl import data as datasets
from dpfl.bad_values import refuse_unknown_options
from dpfl.config.sections import OpenSection
from dpfl.data import partition as partitions
from dpfl.data.declared_task import MOST_CLASSES, names_classes
from dpfl.errors import DpflError

CLIENTS = 10
"""The number of clients where an experiment does not give one."""
BETA = 0.05
"""The Dirichlet parameter where an experiment does not give one."""


class DataSection(OpenSection):
    """`[data]`: a data set, its partition, and the options of both."""

    name: str = "mnist-sample"
    data_dir: str | None = None
    partition: str = "dirichlet"
    clients: int | None = Field(default=None, ge=1, le=100_000_000)
    public_clients: int = Field(default=0, ge=0, le=100_000_000)
    classes: int | None = Field(default=None, ge=1, le=MOST_CLASSES)
    test_share: float | None = Field(default=None, gt=0, lt=1)
    names: list[str] | None = None
    rows_per_person: int | None = Field(default=None, ge=1, le=2**31)
    seed: int | None = Field(default=None, ge=0, lt=2**63)

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, content: Any) -> Any:
        """Chooses the default partition.

        Data that has owners keeps them as clients. Tables, and tasks other than classes, are dealt
        evenly. Classes are dealt unevenly (`dirichlet`).
        """
        if not isinstance(content, Mapping):
            return content
        name = str(content.get("name", "mnist-sample"))
        even = datasets.is_table(name) or not names_classes(content.get("task"))
        default = "site" if datasets.is_owned(name, content) else "iid" if even else "dirichlet"
        settings = {"partition": default, **content}
        if settings["partition"] != "site":
            return {"clients": CLIENTS, **settings}
        if settings.get("clients") is not None or settings.get("public_clients"):
            raise DpflError(
                "Each site of this data is a client: remove data.clients and data.public_clients."
            )
        return settings

    def source(self, data_dir: Path | None = None) -> datasets.DataSource:
        """Loads the data set.

        Args:
            data_dir: The folder of the data sets; by default `data_dir` of this section.

        Returns:
            The data before it is dealt to clients.

        Raises:
            DpflError: There is no such data set or partition, or an option is wrong.
        """
        self._partition()  # refuses a bad partition before any file is read
        folder = data_dir or (Path(self.data_dir) if self.data_dir else None)
        return datasets.load(self.name, folder, **self.source_options())

    def federation(self, seed: int, data_dir: Path | None = None) -> datasets.Federation:
        """Deals the data to clients.

        Args:
            seed: Seed of the partition where this section does not give one.
            data_dir: The folder of the data sets; by default `data_dir` of this section.

        Returns:
            The clients with their rows.
        """
        names = self.names or ()
        dealing = self._partition()
        source = self.source(data_dir)
        if dealing is None:
            federation = source.by_owner(names)
        else:
            clients = CLIENTS if self.clients is None else self.clients
            seed = seed if self.seed is None else self.seed
            federation = source.split(clients, dealing, seed, self.public_clients, names)
        return replace(federation, rows_per_person=self.rows_per_person)

    def node_sections(self, clients: int, seed: int) -> dict[str, dict[str, Any]]:
        """Deals the data to nodes on this machine, for `dpfl up` and tests.

        Args:
            clients: Number of nodes, where the data has no owners.
            seed: Seed of the partition where this section does not give one.

        Returns:
            The sections `[data]` and `[split]` of each node's policy, by the name of the node.
        """
        place = Path(self.name).expanduser()
        data = {"name": str(place.resolve()) if place.exists() else self.name}
        data |= self.source_options()
        if self.data_dir:
            data["data_dir"] = str(Path(self.data_dir).resolve())
        if self.partition == "site":
            owners = self.federation(seed).names
            return {
                name: {"data": data, "split": {"client": name, "partition": "site"}}
                for name in owners
            }
        split = {
            "partition": self.partition,
            "clients": clients,
            "seed": seed if self.seed is None else self.seed,
            "options": self.partition_options(),
        }
        names = self.names or [f"node-{number}" for number in range(clients)]
        return {
            name: {"data": data, "split": {"client": number, **split}}
            for number, name in enumerate(names)
        }

    def source_options(self) -> dict[str, Any]:
        """Returns the options of the data set.

        Returns:
            Those that this section lists and those that only this data set has.
        """
        options, own_words = self.options(), datasets.own_words(self.name)
        declaration = {"classes": self.classes, "test_share": self.test_share}
        return {name: options[name] for name in own_words if name in options} | {
            name: value for name, value in declaration.items() if value is not None
        }

    def partition_options(self) -> dict[str, Any]:
        """Returns the options of the partition.

        Returns:
            Every key that is neither listed nor an option of the data set.

        Raises:
            DpflError: The data has owners, so that nothing is dealt and a key has no meaning.
        """
        own_words = datasets.own_words(self.name)
        options = {name: value for name, value in self.options().items() if name not in own_words}
        if self.partition == "dirichlet":
            options.setdefault("beta", BETA)
        if self.partition == "site":
            refuse_unknown_options(f"The data set {self.name!r}", options, own_words)
        return options

    def _partition(self) -> partitions.Partition | datasets.RandomClients | None:
        options = self.partition_options()
        if self.partition == "site":
            return None
        return partitions.parse(self.partition, **options)
