"""The policy of a node: `policy.toml`, in which the owner of the data says what may happen to it.

    policy = read(Path("/srv/hospital/policy.toml"))

A policy answers five questions. The sections of the file are documented in `policy_sections.py`.

- Whose tasks does the node execute? (`[owners]`: public keys.) A message of anybody else is
  refused before its content is looked at.
- How much may be learned about the data? (`[limits]`: epsilon in all, per year and per run, at one
  delta, for one unit and one neighbour relation.) The node's own ledger enforces it.
- Which computations are allowed? (`[allow]`: systems, models, and bounds of noise, clip, sampling
  rate, steps, rounds, message size.) `checks/policy_checker.py` enforces it before anything is
  debited.
- What may leave without being paid for? (`[tell]`: the declared size; nothing else by default.)
- With whom does the node sum? (`[secure]`: names and keys of the members.)

The server cannot change any of this. A policy is read when the node starts, and a file that is not
valid stops the start with one sentence.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import ValidationError

from dpfl import models
from dpfl.bad_values import invalid, read_toml, too_deep
from dpfl.client.disclosure_rules import DisclosureRules
from dpfl.data.names import checked_names
from dpfl.errors import DpflError
from dpfl.import_path import is_path
from dpfl.node.policy_sections import (
    AllowedRuns,
    DeclaredSize,
    PolicyFile,
    PolicyLimits,
    PolicyServer,
    PolicySplit,
    SecureSumGroup,
)
from dpfl.privacy import Keyed, Limit, Randomness, SystemEntropy
from dpfl.privacy.ledger.limit import SubLimit
from dpfl.privacy.units import protects_person
from dpfl.protocol.keys import public_key_hex

SEED = "DPFL_TEST_KEYED_SEED"
"""The environment variable with the seed of `tell.entropy = "keyed"`. It is for tests: whoever
knows the seed can subtract the noise.
"""
YEAR = 365.0
"""The days of a year."""
ANY = "*"
"""The word in `allow.systems` for every system."""


@dataclass(frozen=True)
class NodePolicy:
    """A checked policy.

    Attributes:
        folder: The folder of the policy file. All relative paths start there.
        name: The node's name.
        key: The file of the private key that signs the node's messages.
        data: The `[data]` section: which data set, and how it is read.
        split: The `[split]` section, if the node takes a part of a dealt data set.
        server: The `[server]` section.
        owners: Whose tasks are executed: public keys, by their hexadecimal digits.
        limits: The `[limits]` section.
        allow: The `[allow]` section.
        tell: The `[tell]` section.
        secure: The `[secure]` section, its members by the hexadecimal digits of their keys.
        witness: A file on other storage, to which every signed head of the ledger is appended.
    """

    folder: Path
    name: str
    key: Path
    data: Mapping[str, Any]
    split: PolicySplit | None
    server: PolicyServer
    owners: Mapping[str, Ed25519PublicKey]
    limits: PolicyLimits
    allow: AllowedRuns
    tell: DeclaredSize
    secure: SecureSumGroup | None = None
    witness: Path | None = None

    @property
    def disclosure_rules(self) -> DisclosureRules:
        """What may leave without noise. No policy allows raw values: no epsilon pays for them."""
        return DisclosureRules(self.tell.trusted, self.tell.bare, sums=self.secure is not None)

    @property
    def limit(self) -> Limit:
        """The limit of all runs together."""
        return Limit(self.limits.epsilon, self.limits.delta, self.limits.accountant)

    def sub_limits(self, run: str) -> tuple[SubLimit, ...]:
        """Lists the owner's limits on a part of all releases.

        Args:
            run: The run that a limit per run is for.

        Returns:
            The limits per year and per run, where the policy sets them.
        """
        sub_limits = []
        if self.limits.epsilon_a_year is not None:
            sub_limits.append(SubLimit(self._limit(self.limits.epsilon_a_year), days=YEAR))
        if self.limits.epsilon_a_run is not None:
            sub_limits.append(SubLimit(self._limit(self.limits.epsilon_a_run), run=run))
        return tuple(sub_limits)

    def _limit(self, epsilon: float) -> Limit:
        return Limit(epsilon, self.limits.delta, self.limits.accountant)

    def declared_size(self, units: int) -> int:
        """Computes the number of units that the node declares to servers.

        Args:
            units: How many units there are.

        Returns:
            The declared number. Rounding is upwards, so that a node never declares none.
        """
        return self.tell.size_rule.declared_size(units)

    def rows_in_memory(self, declared_size: int, rows_per_person: int | None) -> int:
        """Counts the rows by which the memory for features is judged.

        The count follows from what the server knows already, so that a refusal tells it nothing
        more.

        Args:
            declared_size: The declared number of units.
            rows_per_person: The most rows of one person that are trained on, if the policy says so.

        Returns:
            The number of rows.
        """
        return (
            declared_size * (rows_per_person or 1)
            if protects_person(self.limits.unit)
            else declared_size
        )

    @property
    def randomness(self) -> Randomness:
        """Where the node's noise comes from.

        Raises:
            DpflError: The policy asks for a seed, and the environment has none.
        """
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
        """The folder of the node's ledger."""
        return self.folder / "ledger"


def read(path: Path) -> NodePolicy:
    """Reads and checks a policy.

    Args:
        path: The policy file, or the folder that contains `policy.toml`.

    Returns:
        The policy.

    Raises:
        DpflError: The file cannot be read, or says something that no policy can say.
    """
    path = Path(path)
    path = path / "policy.toml" if path.is_dir() else path
    content = read_toml(path, "policy", "make one with: dpfl node init FOLDER")
    try:
        file = PolicyFile.model_validate(_tuples(content))
    except RecursionError:
        raise too_deep(f"the policy {path}") from None
    except ValidationError as error:
        raise invalid(error, f"the policy {path}", PolicyFile) from None
    return _build_policy(path, file)


def _tuples(content: dict[str, Any]) -> dict[str, Any]:
    """Turns TOML's lists in `[allow]` into the tuples of that section."""
    allow = content.get("allow")
    if isinstance(allow, dict):
        content = content | {
            "allow": {
                key: tuple(value) if isinstance(value, list) else value
                for key, value in allow.items()
            }
        }
    return content


def _build_policy(path: Path, file: PolicyFile) -> NodePolicy:
    folder = path.resolve().parent
    checked_names([file.name], 1)
    _check_models(file.allow)
    policy = NodePolicy(
        folder,
        file.name,
        folder / file.key,
        file.data,
        file.split,
        file.server,
        {key.lower(): _owner_key(owner, key) for owner, key in file.owners.items()},
        file.limits,
        file.allow,
        file.tell,
        file.secure and _with_raw_keys(file.secure),
        _witness(folder, file.witness),
    )
    policy.sub_limits("run")  # refuses what cannot be a limit
    policy.limit  # noqa: B018
    return policy


def _check_models(allow: AllowedRuns) -> None:
    for name in allow.models:
        if is_path(name):
            raise DpflError(
                f"allow.models has the import path {name!r}: own models are named in "
                "[allow.own_models]."
            )
        models.from_name(name)
    for name in allow.own_models:
        if not is_path(name):
            raise DpflError(
                f'allow.own_models has {name!r}: name models by "package.module:factory", with '
                "their options."
            )


def _witness(folder: Path, name: str | None) -> Path | None:
    """Refuses a witness in the node's own folder: restoring a backup would set it back too."""
    if name is None:
        return None
    path = (folder / Path(name).expanduser()).resolve()
    if path.is_relative_to(folder):
        raise DpflError(
            f"witness is {name!r}, inside of the node's own folder: name a file on other storage."
        )
    return path


def _with_raw_keys(secure: SecureSumGroup) -> SecureSumGroup:
    """Accepts each member's key alone, or the whole line that `dpfl node init` printed there."""
    checked_names(list(secure.members), len(secure.members))
    members = {}
    for name, line in secure.members.items():
        try:
            members[name] = public_key_hex(
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


def _owner_key(owner: str, key: str) -> Ed25519PublicKey:
    try:
        return Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
    except ValueError:
        raise DpflError(
            f"owners.{owner} is no public key: give the 64 hexadecimal digits that `dpfl server "
            "init` prints."
        ) from None
