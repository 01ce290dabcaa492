"""The sections of `policy.toml`, as the owner of a node writes them.

Each class is one section, and each field one key with its default. A file with a key that is not
listed here is refused. `policy.py` turns the checked file into a `NodePolicy`.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from dpfl.privacy.accounting.budget import MAX_ROUNDS
from dpfl.privacy.accounting.events import ADD_REMOVE
from dpfl.secagg.group import FEWEST, MOST


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class PolicyServer(_Section):
    """`[server]`: where the server is, and how Flower's connection to it is secured."""

    address: str = "127.0.0.1:9092"
    """Host and port of the server's SuperLink."""
    ca: str = "ca.crt"
    """The certificate of the server's authority."""
    key: str = "carrier.key"
    """The key by which the SuperLink lets this node in. It signs no messages."""
    watch: int = Field(default=0, ge=0, le=65535)
    """A port of this machine for `/health` and `/metrics`; 0 is none."""


class PolicySplit(_Section):
    """`[split]`: take one client's part of a data set that is dealt as an experiment deals it.

    This is for trials where all data is in one place.
    """

    client: int | str
    """The client's number, or its name."""
    partition: str = "iid"
    """How the samples are dealt."""
    clients: int = Field(default=10, ge=1, le=100_000)
    """How many clients they are dealt to."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """The seed of the dealing."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the partition."""


class PolicyLimits(_Section):
    """`[limits]`: the most epsilon that this node ever spends, and what it is counted for."""

    epsilon: float = Field(gt=0)
    """For all runs together, for ever."""
    delta: float = Field(gt=0, lt=1)
    """The delta of every epsilon in this section."""
    epsilon_a_year: float | None = Field(default=None, gt=0)
    """For all releases of the last 365 days."""
    epsilon_a_run: float | None = Field(default=None, gt=0)
    """For each run."""
    accountant: str = "pld"
    """The accountant that computes epsilon."""
    unit: Literal["sample", "person", "client"] = "sample"
    """What the guarantee protects."""
    neighbours: Literal["add/remove one", "replace one"] = ADD_REMOVE  # type: ignore[assignment]
    """The neighbour relation of the guarantee."""


class AllowedRuns(_Section):
    """`[allow]`: which runs the node takes part in, and the bounds of what they may ask for."""

    systems: tuple[str, ...] = ()
    """Systems by name; `"*"` allows every system."""
    models: tuple[str, ...] = ()
    """Models of the catalogue by name."""
    own_models: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """The owner's own models by import path, each with the only options that it may have."""
    variants: tuple[str, ...] = ("sound",)
    """Variants of systems."""
    least_noise_multiplier: float = Field(default=0.3, gt=0)
    """The least noise multiplier of any release."""
    largest_clip: float = Field(default=10.0, gt=0)
    """The largest clip norm of any release."""
    largest_weight: float = Field(default=1e4, gt=0)
    """The largest magnitude of any number of a model that is sent to the node."""
    largest_sampling_rate: float = Field(default=0.5, gt=0, le=1)
    """The largest share of the units in one step."""
    most_steps: int = Field(default=1000, ge=1, le=1_000_000)
    """Steps per round."""
    most_rounds: int = Field(default=1000, ge=1, le=MAX_ROUNDS)
    """Rounds per run."""
    most_bytes: int = Field(default=256 << 20, ge=1 << 16, le=1 << 34)
    """Bytes of a message, in either direction."""
    most_memory: int = Field(default=4 << 30, ge=1 << 16, le=1 << 44)
    """Bytes that the fixed features of all samples may take."""


class ExactSize(_Section):
    """`tell.size = "exact"`: declare the number of units as it is."""

    exact: ClassVar[bool] = True

    def declared_size(self, units: int) -> int:
        """Computes what the node declares to servers.

        Args:
            units: How many units there are.

        Returns:
            The declared number.
        """
        return units

    def describe(self) -> str:
        """Says in words how the number is declared.

        Returns:
            A phrase.
        """
        return "exactly"


class RoundedSize(_Section):
    """`tell.size = {rounded = N}`: declare the number of units rounded up to a multiple of N."""

    rounded: int = Field(ge=2, le=1_000_000_000)
    """N."""
    exact: ClassVar[bool] = False

    def declared_size(self, units: int) -> int:
        """Computes what the node declares to servers.

        Args:
            units: How many units there are.

        Returns:
            The next multiple of N, so that a node with units never declares none.
        """
        return math.ceil(units / self.rounded) * self.rounded

    def describe(self) -> str:
        """Says in words how the number is declared.

        Returns:
            A phrase.
        """
        return f"rounded up to {self.rounded}s"


class ConstantSize(_Section):
    """`tell.size = {constant = N}`: always declare N units."""

    constant: int = Field(ge=1, le=1_000_000_000)
    """N."""
    exact: ClassVar[bool] = False

    def declared_size(self, units: int) -> int:
        """Computes what the node declares to servers.

        Args:
            units: How many units there are.

        Returns:
            N.
        """
        return self.constant

    def describe(self) -> str:
        """Says in words how the number is declared.

        Returns:
            A phrase.
        """
        return f"always said to be {self.constant}"


class DeclaredSize(_Section):
    """`[tell]`: what leaves the node beside releases that its ledger pays for."""

    size: Literal["exact"] | RoundedSize | ConstantSize
    """How the number of units is declared."""
    trusted: bool = False
    """Whether the server is trusted to add the noise to clipped updates."""
    bare: bool = False
    """Whether updates may leave without any noise."""
    secure: bool = True
    """Whether every release must have noise that is safe against floating-point attacks."""
    every: float = Field(default=0.0, ge=0, le=3600)
    """If above 0, replies leave a whole multiple of so many seconds after their task arrived, so
    that the duration of the training says less about the data.
    """
    entropy: Literal["system", "keyed"] = "system"
    """Where noise comes from; "keyed" is a seed, and only for tests."""

    @property
    def size_rule(self) -> ExactSize | RoundedSize | ConstantSize:
        """How the number of units is declared."""
        return ExactSize() if self.size == "exact" else self.size


class SecureSumGroup(_Section):
    """`[secure]`: with whom this node sums so that the server sees only the sum."""

    members: dict[str, str] = Field(min_length=2, max_length=MOST)
    """The public key of each member by name, as its owner gave it to the owner of this node.
    Somebody who can put a key of their own here can look into the sums.
    """
    least_survivors: int = Field(default=FEWEST, ge=2, le=MOST)
    """The fewest members whose sum may be opened."""
    least_colluders: int = Field(default=1, ge=0, lt=MOST)
    """How many members the noise must assume to help the server, at least."""


class PolicyFile(_Section):
    """The content of `policy.toml`."""

    name: str
    """The node's name in every federation."""
    key: str = "node.pem"
    """The private key that signs the node's messages."""
    witness: str | None = None
    """A file on other storage that records how far the ledger has come."""
    data: dict[str, Any]
    """The data set: its name or path, and the options of its reader."""
    split: PolicySplit | None = None
    server: PolicyServer = PolicyServer()
    owners: dict[str, str] = Field(min_length=1, max_length=16)
    """The public keys, by name, whose tasks the node executes."""
    limits: PolicyLimits
    allow: AllowedRuns
    tell: DeclaredSize
    secure: SecureSumGroup | None = None
