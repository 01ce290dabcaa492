"""Checks whether a node is ready to start: key, members, data, memory, ledger, entropy, clock, disk
and server, each by itself.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from dpfl import models
from dpfl.bad_values import wrong_value
from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.models import feature_map
from dpfl.node.history.rollback import refuse_missing, refuse_traces
from dpfl.node.history.signed_heads import own_heads
from dpfl.node.load_data import digest, load_node_data
from dpfl.node.policy import NodePolicy
from dpfl.node.storage.task_log import MOST_KEPT
from dpfl.privacy import Ledger, accountant
from dpfl.privacy.ledger.client_ledgers import ledger_path
from dpfl.privacy.ledger.ledger import LedgerAccount
from dpfl.privacy.statement import figure
from dpfl.protocol.keys import fingerprint, load_private, public_key_hex

PATIENCE = 3.0
"""Seconds to wait for a connection to the server."""
EARLIEST = 1_700_000_000.0
"""A clock before this time is wrong, and the limit of a year cannot be counted by it."""


@dataclass(frozen=True)
class ReadinessFinding:
    """The result of one check.

    Attributes:
        part: What was checked, in a word.
        good: Whether it is in order.
        words: The details, or what is wrong and what to do.
    """

    part: str
    good: bool
    words: str


def findings(policy: NodePolicy) -> list[ReadinessFinding]:
    """Checks every part of a node, whatever the result of the others.

    Nothing is written, so this may be called while the node runs.

    Args:
        policy: The node's policy.

    Returns:
        One finding per part.
    """
    results = [_check("key", lambda: _key(policy))]
    if policy.secure:
        results.append(_check("members", lambda: _members(policy)))
    data: list[Federation] = []
    results.append(_check("data", lambda: _data(policy, data)))
    if data:
        results.append(_check("memory", lambda: _memory(policy, data[0])))
        results.append(_check("ledger", lambda: _ledger(policy, data[0])))
    results.append(_check("entropy", lambda: _entropy(policy)))
    results.append(_check("clock", lambda: _clock(policy)))
    results.append(_check("disk", lambda: _disk(policy)))
    results.append(_check("server", lambda: _server(policy)))
    return results


def _check(part: str, check: Callable[[], str]) -> ReadinessFinding:
    try:
        return ReadinessFinding(part, True, check())
    except DpflError as error:
        return ReadinessFinding(part, False, str(error))


def _key(policy: NodePolicy) -> str:
    return (
        f"{policy.key.name}, {fingerprint(public_key_hex(load_private(policy.key).public_key()))}"
    )


def _members(policy: NodePolicy) -> str:
    """Lists the fingerprints of the members' keys, to compare with what their owners say."""
    assert policy.secure is not None
    refuse_other_key(policy, public_key_hex(load_private(policy.key).public_key()))
    others = {name: key for name, key in policy.secure.members.items() if name != policy.name}
    return "sums with " + ", ".join(f"{name} ({fingerprint(key)})" for name, key in others.items())


def refuse_other_key(policy: NodePolicy, public_key: str) -> None:
    """Refuses a policy that lists another key for this node among the members of its sums.

    Args:
        policy: The node's policy.
        public_key: The node's public key.

    Raises:
        DpflError: The keys differ.
    """
    if policy.secure and policy.secure.members.get(policy.name, public_key) != public_key:
        raise DpflError(
            f"secure.members.{policy.name} is not this node's own key: correct it, or leave it out."
        )


def _data(policy: NodePolicy, result: list[Federation]) -> str:
    """Loads the data, and appends it to `result` for the checks that need it."""
    data = load_node_data(policy)
    result.append(data)
    shape = " x ".join(map(str, data.shape))
    private = "".join(f"; {note}" for note in data.private)
    return f"{len(data.train)} samples of {shape} for the task {data.task.name}{private}"


def _memory(policy: NodePolicy, data: Federation) -> str:
    """Computes the memory that the features take. The server sees refusals by the declared size
    only; the owner sees the true amount.
    """
    if not any(_has_features(name, data.shape) for name in policy.allow.models):
        return "no model that the policy allows needs memory for fixed features"
    rows, most_bytes = len(data.train), policy.allow.most_memory
    declared_size = policy.declared_size(data.count_units(policy.limits.unit)[0])
    each = most_bytes // max(policy.rows_in_memory(declared_size, data.rows_per_person), 1)
    need = (
        f"features may take {each} bytes per sample, {each * rows / 1e9:.2g} GB for {rows} samples"
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if each * rows > memory:
        raise DpflError(
            f"By the declared size {need}, but this machine has {memory / 1e9:.2g} GB: lower "
            "allow.most_memory."
        )
    return need


def _has_features(name: str, shape: tuple[int, ...]) -> bool:
    """Says whether this model of the catalogue is trained on fixed features of such samples."""
    try:
        return feature_map(models.from_name(name), shape) is not None
    except DpflError:  # it does not take such samples
        return False


def _ledger(policy: NodePolicy, data: Federation) -> str:
    path, limits = ledger_path(policy.ledgers, policy.name), policy.limits
    kind = (
        f"for one {limits.unit} ({limits.neighbours}), delta {limits.delta:g}, by "
        f"{limits.accountant}"
    )
    refuse_traces(policy)
    if not path.exists():
        return f"none yet; it is made when the node starts, {kind}"
    with closing(Ledger.read(path)) as ledger:
        ledger.check_account(LedgerAccount(policy.name, limits.unit, limits.neighbours))
        if ledger.debits() and not ledger.counts_data(digest(data, limits.unit)):
            raise DpflError(
                f"The ledger {path} counts other data than the policy names; bring back the data "
                "that it counts."
            )
        refuse_missing(
            policy, ledger, own_heads(policy, public_key_hex(load_private(policy.key).public_key()))
        )
        epsilon = figure(accountant(limits.accountant).epsilon(ledger.spending(), limits.delta))
        return (
            f"intact, {len(ledger.debits())} debits; epsilon {epsilon} of {limits.epsilon:g} "
            f"spent {kind}"
        )


def _entropy(policy: NodePolicy) -> str:
    policy.randomness  # noqa: B018
    return (
        "from the operating system"
        if policy.tell.entropy == "system"
        else "from a seed, for tests only"
    )


def _clock(policy: NodePolicy) -> str:
    now, path = time.time(), ledger_path(policy.ledgers, policy.name)
    if now < EARLIEST:
        raise DpflError(
            "The clock of this machine is years behind: set it, since a year's limit is counted by "
            "it."
        )
    if path.exists():
        with closing(Ledger.read(path)) as ledger:
            if any(at > now + 1 for *_, at in ledger.debits()):
                raise DpflError(
                    "The ledger has debits that are later than this machine's clock: set the clock."
                )
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))


def _disk(policy: NodePolicy) -> str:
    free, bytes_needed = shutil.disk_usage(policy.folder).free, MOST_KEPT * policy.allow.most_bytes
    if free < policy.allow.most_bytes:
        raise DpflError(
            f"The disk has {free >> 20} MB left, less than one message may need: free some space."
        )
    enough = (
        ""
        if free >= bytes_needed
        else f"; kept replies of many runs may need {bytes_needed >> 20} MB"
    )
    return f"{free >> 20} MB free{enough}"


def _server(policy: NodePolicy) -> str:
    address = policy.server.address
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        advice = "give a host and a port, such as fl.example.org:9092"
        raise wrong_value(address, "server.address", advice)
    authority = policy.folder / Path(policy.server.ca).expanduser()
    if not authority.is_file():
        raise DpflError(
            f"There is no certificate {authority}: get the server's ca.crt, and name it by "
            "server.ca."
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()
    except OSError as error:
        raise DpflError(
            f"The server {address} cannot be reached ({error.strerror or error}): start it first."
        ) from None
    return f"{address} can be reached"
