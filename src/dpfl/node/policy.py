"""The policy of a node, as its owner writes it (policy.toml): whose data, whose orders, how much,
and what may leave.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dpfl import models
from dpfl.bad_values import invalid, read_toml, too_deep
from dpfl.client.disclosure_rules import DisclosureRules
from dpfl.data.names import checked_names
from dpfl.errors import DpflError
from dpfl.import_path import is_path
from dpfl.privacy import Keyed, Limit, Randomness, SystemEntropy
from dpfl.privacy.accounting.budget import MAX_ROUNDS
from dpfl.privacy.accounting.events import ADD_REMOVE
from dpfl.privacy.ledger.limit import SubLimit
from dpfl.protocol.keys import raw
from dpfl.secagg.group import FEWEST, MOST

SEED = "DPFL_TEST_KEYED_SEED"
"""In the node's own environment, beside tell.entropy = "keyed": for tests, since whoever knows a
seed can take noise away.
"""
YEAR = 365.0
ANY = "*"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class PolicyServer(_Section):
    """Where it is, the certificate of its authority, and the key that Flower lets this node in
    by.
    """

    address: str = "127.0.0.1:9092"
    ca: str = "ca.crt"
    key: str = "carrier.key"
    watch: int = Field(default=0, ge=0, le=65535)
    """A port of this machine for /health and /metrics; 0 is none."""


class PolicySplit(_Section):
    """Of data that is dealt, as an experiment would, the part of one client: for trials on data
    that is all in one place.
    """

    client: int | str
    partition: str = "iid"
    clients: int = Field(default=10, ge=1, le=100_000)
    seed: int = Field(default=0, ge=0, lt=2**63)
    options: dict[str, Any] = Field(default_factory=dict)


class PolicyLimits(_Section):
    """Epsilon at one delta: in all, a year, a run."""

    epsilon: float = Field(gt=0)
    delta: float = Field(gt=0, lt=1)
    epsilon_a_year: float | None = Field(default=None, gt=0)
    epsilon_a_run: float | None = Field(default=None, gt=0)
    accountant: str = "pld"
    unit: Literal["sample", "person", "client"] = "sample"
    neighbours: Literal["add/remove one", "replace one"] = ADD_REMOVE  # type: ignore[assignment]


class AllowedRuns(_Section):
    """What a run may be."""

    systems: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    own_models: dict[str, dict[str, Any]] = Field(default_factory=dict)
    variants: tuple[str, ...] = ("sound",)
    least_noise_multiplier: float = Field(default=0.3, gt=0)
    largest_clip: float = Field(default=10.0, gt=0)
    largest_weight: float = Field(default=1e4, gt=0)
    """Of any number of a model that is sent, up or down; see `Guard.check_vectors`."""
    largest_sampling_rate: float = Field(default=0.5, gt=0, le=1)
    most_steps: int = Field(default=1000, ge=1, le=1_000_000)
    most_rounds: int = Field(default=1000, ge=1, le=MAX_ROUNDS)
    most_bytes: int = Field(default=256 << 20, ge=1 << 16, le=1 << 34)
    most_memory: int = Field(default=4 << 30, ge=1 << 16, le=1 << 44)
    """Bytes that the fixed features of all samples may take."""


class RoundedSize(_Section):
    rounded: int = Field(ge=2, le=1_000_000_000)


class ConstantSize(_Section):
    constant: int = Field(ge=1, le=1_000_000_000)


class DeclaredSize(_Section):
    """What is said beside what is paid for."""

    size: Literal["exact"] | RoundedSize | ConstantSize
    trusted: bool = False
    bare: bool = False
    secure: bool = True
    every: float = Field(default=0.0, ge=0, le=3600)
    """Replies leave at whole multiples of so many seconds after their order came: how long it took
    says less then.
    """
    entropy: Literal["system", "keyed"] = "system"


class SecureSumGroup(_Section):
    """With whom this node sums so that a server sees the sum only, how many must be in it, and how
    many may be the server's.
    """

    members: dict[str, str] = Field(min_length=2, max_length=MOST)
    """The public key of each, as its owner gave it: whoever can put a key here can look into the
    sums.
    """
    least_survivors: int = Field(default=FEWEST, ge=2, le=MOST)
    least_colluders: int = Field(default=1, ge=0, lt=MOST)


class _File(_Section):
    name: str
    key: str = "node.pem"
    witness: str | None = None
    data: dict[str, Any]
    split: PolicySplit | None = None
    server: PolicyServer = PolicyServer()
    owners: dict[str, str] = Field(min_length=1, max_length=16)
    limits: PolicyLimits
    allow: AllowedRuns
    tell: DeclaredSize
    secure: SecureSumGroup | None = None


@dataclass(frozen=True)
class NodePolicy:
    """The policy, checked; its paths are those of its folder."""

    folder: Path
    name: str
    key: Path
    data: Mapping[str, Any]
    split: PolicySplit | None
    server: PolicyServer
    owners: Mapping[str, Ed25519PublicKey]
    """By the hexadecimal digits of their keys."""
    limits: PolicyLimits
    allow: AllowedRuns
    tell: DeclaredSize
    secure: SecureSumGroup | None = None
    """Its members by the hexadecimal digits of their keys."""
    witness: Path | None = None
    """A file on other storage to which every signed head of the ledger is appended."""

    @property
    def policy(self) -> DisclosureRules:
        """Raw values are in no policy: no epsilon pays for them."""
        return DisclosureRules(self.tell.trusted, self.tell.bare, sums=self.secure is not None)

    @property
    def limit(self) -> Limit:
        return Limit(self.limits.epsilon, self.limits.delta, self.limits.accountant)

    def shares(self, run: str) -> tuple[SubLimit, ...]:
        """What a year and a run may spend at most."""
        found = []
        if self.limits.epsilon_a_year is not None:
            found.append(SubLimit(self._limit(self.limits.epsilon_a_year), days=YEAR))
        if self.limits.epsilon_a_run is not None:
            found.append(SubLimit(self._limit(self.limits.epsilon_a_run), run=run))
        return tuple(found)

    def _limit(self, epsilon: float) -> Limit:
        return Limit(epsilon, self.limits.delta, self.limits.accountant)

    def declared(self, units: int) -> int:
        """How many units this node says that it has; rounded up, so that it never says none."""
        size = self.tell.size
        if isinstance(size, RoundedSize):
            return math.ceil(units / size.rounded) * size.rounded
        return size.constant if isinstance(size, ConstantSize) else units

    def rows(self, declared: int, rows_per_person: int | None) -> int:
        """How many rows memory is counted for: those that the node says it has, so that what it
        refuses says no more. Of a person the most that are trained on, where the policy says
        that."""
        return declared * (rows_per_person or 1) if self.limits.unit == "person" else declared

    @property
    def randomness(self) -> Randomness:
        if self.tell.entropy == "system":
            return SystemEntropy()
        seed = os.environ.get(SEED, "")
        if not seed.isdigit():
            raise DpflError(
                f'tell.entropy = "keyed" is for tests, and needs {SEED} in the environment: for '
                'real data, use "system".'
            )
        return Keyed(int(seed))

    @property
    def ledgers(self) -> Path:
        return self.folder / "ledger"


def read(path: Path) -> NodePolicy:
    """The policy of a file, or of a folder that has one."""
    path = Path(path)
    path = path / "policy.toml" if path.is_dir() else path
    content = read_toml(path, "policy", "make one with: dpfl node init FOLDER")
    try:
        file = _File.model_validate(_tuples(content))
    except RecursionError:
        raise too_deep(f"the policy {path}") from None
    except ValidationError as error:
        raise invalid(error, f"the policy {path}", _File) from None
    return _charter(path, file)


def _tuples(content: dict[str, Any]) -> dict[str, Any]:
    """Lists of [allow] as the section has them; data is its reader's to check."""
    allow = content.get("allow")
    if isinstance(allow, dict):
        content = content | {
            "allow": {
                key: tuple(value) if isinstance(value, list) else value
                for key, value in allow.items()
            }
        }
    return content


def _charter(path: Path, file: _File) -> NodePolicy:
    folder = path.resolve().parent
    checked_names([file.name], 1)
    for name in file.allow.models:
        if is_path(name):
            raise DpflError(
                f"allow.models has the import path {name!r}: own models are named in "
                "[allow.own_models]."
            )
        models.from_name(name)
    for name in file.allow.own_models:
        if not is_path(name):
            raise DpflError(
                f'allow.own_models has {name!r}: name models by "package.module:factory", with '
                "their options."
            )
    owners = {key.lower(): _public(owner, key) for owner, key in file.owners.items()}
    charter = NodePolicy(
        folder,
        file.name,
        folder / file.key,
        file.data,
        file.split,
        file.server,
        owners,
        file.limits,
        file.allow,
        file.tell,
        file.secure and _pinned(file.secure),
        _witness(folder, file.witness),
    )
    charter.shares("run")  # what cannot be a limit is refused here
    charter.limit  # noqa: B018
    return charter


def _witness(folder: Path, given: str | None) -> Path | None:
    """Refused in the node's own folder, where a backup would set it back with the ledger."""
    if given is None:
        return None
    path = (folder / Path(given).expanduser()).resolve()
    if path.is_relative_to(folder):
        raise DpflError(
            f"witness is {given!r}, inside of the node's own folder: name a file on other storage."
        )
    return path


def _pinned(secure: SecureSumGroup) -> SecureSumGroup:
    """A member is listed by its key, or by the whole line that its `dpfl node init` printed."""
    checked_names(list(secure.members), len(secure.members))
    members = {}
    for name, line in secure.members.items():
        try:
            members[name] = raw(
                Ed25519PublicKey.from_public_bytes(bytes.fromhex(line.split(" ")[0]))
            )
        except ValueError:
            raise DpflError(
                f"secure.members.{name} is no public key: give the line that its owner's `dpfl "
                "node init` printed."
            ) from None
    if len(set(members.values())) < len(members):
        raise DpflError("Two of secure.members have the same key: every member has one of its own.")
    return secure.model_copy(update={"members": members})


def _public(owner: str, key: str) -> Ed25519PublicKey:
    try:
        return Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
    except ValueError:
        raise DpflError(
            f"owners.{owner} is no public key: give the 64 hexadecimal digits that `dpfl server "
            "init` prints."
        ) from None
