"""Whether a node is in order before it starts, each part by itself; and in plain words what will
leave it and what will not.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from dpfl import models
from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.models import feature_map
from dpfl.node.load_data import digest, load_node_data
from dpfl.node.policy import ConstantSize, NodePolicy, RoundedSize, SecureSumGroup
from dpfl.node.rollback import own_heads, refuse_missing, refuse_traces
from dpfl.node.task_log import MOST_KEPT
from dpfl.privacy import Ledger, accountant
from dpfl.privacy.ledger.client_ledgers import ledger_path
from dpfl.privacy.ledger.ledger import LedgerAccount
from dpfl.privacy.statement import figure
from dpfl.protocol.keys import fingerprint, load_private, raw

PATIENCE = 3.0
"""Seconds that a server is waited for."""
EARLIEST = 1_700_000_000.0
"""A clock that is before this one is wrong, and a year could not be counted by it."""


@dataclass(frozen=True)
class ReadinessFinding:
    part: str
    good: bool
    words: str


def findings(charter: NodePolicy) -> list[ReadinessFinding]:
    """Each is looked at whatever the others are; nothing is written, so that it can be asked while
    the node runs.
    """
    found = [_of("key", lambda: _key(charter))]
    if charter.secure:
        found.append(_of("members", lambda: _members(charter)))
    data: list[Federation] = []
    found.append(_of("data", lambda: _data(charter, data)))
    if data:
        found.append(_of("memory", lambda: _memory(charter, data[0])))
        found.append(_of("ledger", lambda: _ledger(charter, data[0])))
    found += [_of("entropy", lambda: _entropy(charter)), _of("clock", lambda: _clock(charter))]
    return [*found, _of("disk", lambda: _disk(charter)), _of("server", lambda: _server(charter))]


def _of(part: str, look: Callable[[], str]) -> ReadinessFinding:
    try:
        return ReadinessFinding(part, True, look())
    except DpflError as error:
        return ReadinessFinding(part, False, str(error))


def _key(charter: NodePolicy) -> str:
    return f"{charter.key.name}, {fingerprint(raw(load_private(charter.key).public_key()))}"


def _members(charter: NodePolicy) -> str:
    """By their fingerprints, to be compared with what their owners say."""
    assert charter.secure is not None
    listed, own = charter.secure.members, raw(load_private(charter.key).public_key())
    refuse_other_key(charter, own)
    others = {name: key for name, key in listed.items() if name != charter.name}
    return "sums with " + ", ".join(f"{name} ({fingerprint(key)})" for name, key in others.items())


def refuse_other_key(charter: NodePolicy, own: str) -> None:
    listed = charter.secure.members.get(charter.name, own) if charter.secure else own
    if listed != own:
        raise DpflError(
            f"secure.members.{charter.name} is not this node's own key: correct it, or leave it "
            "out."
        )


def _data(charter: NodePolicy, found: list[Federation]) -> str:
    found.append(load_node_data(charter))
    shape = " x ".join(map(str, found[0].shape))
    private = "".join(f"; {note}" for note in found[0].private)
    return f"{len(found[0].train)} samples of {shape} for the task {found[0].task.name}{private}"


def _memory(charter: NodePolicy, data: Federation) -> str:
    """Runs are refused by the declared size, so that the server learns no other: the owner is told
    what that is in truth.
    """
    if not any(_has_features(name, data.shape) for name in charter.allow.models):
        return "no model of the policy has fixed features that would take some"
    rows, most = len(data.train), charter.allow.most_memory
    declared = charter.declared(data.counted(charter.limits.unit)[0])
    each = most // max(charter.rows(declared, data.rows_per_person), 1)
    needed = (
        f"features may take {each} bytes of a sample, {each * rows / 1e9:.2g} GB for {rows} samples"
    )
    if each * rows > (there := os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")):
        raise DpflError(
            f"By the declared size {needed}, but this machine has {there / 1e9:.2g} GB: lower "
            "allow.most_memory."
        )
    return needed


def _has_features(name: str, shape: tuple[int, ...]) -> bool:
    """Whether this model of the catalogue would be trained on features of these samples."""
    try:
        return feature_map(models.from_name(name), shape) is not None
    except DpflError:  # samples that it does not take
        return False


def _ledger(charter: NodePolicy, data: Federation) -> str:
    path, limits = ledger_path(charter.ledgers, charter.name), charter.limits
    kind = (
        f"for one {limits.unit} ({limits.neighbours}), delta {limits.delta:g}, by "
        f"{limits.accountant}"
    )
    refuse_traces(charter)
    if not path.exists():
        return f"none yet; it is made when the node starts, {kind}"
    with closing(Ledger.read(path)) as ledger:
        ledger.check_account(LedgerAccount(charter.name, limits.unit, limits.neighbours))
        if ledger.debits() and not ledger.counts_data(digest(data, limits.unit)):
            raise DpflError(
                f"The ledger {path} counts other data than the policy names; bring back the data "
                "that it counts."
            )
        refuse_missing(
            charter, ledger, own_heads(charter, raw(load_private(charter.key).public_key()))
        )
        spent = figure(accountant(limits.accountant).epsilon(ledger.spending(), limits.delta))
        return (
            f"whole, {len(ledger.debits())} debits; epsilon {spent} of {limits.epsilon:g} "
            "spent "
            f"{kind}"
        )


def _entropy(charter: NodePolicy) -> str:
    charter.randomness  # noqa: B018
    return "the system's" if charter.tell.entropy == "system" else "of a seed, for tests alone"


def _clock(charter: NodePolicy) -> str:
    now, path = time.time(), ledger_path(charter.ledgers, charter.name)
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


def _disk(charter: NodePolicy) -> str:
    free, needed = shutil.disk_usage(charter.folder).free, MOST_KEPT * charter.allow.most_bytes
    if free < charter.allow.most_bytes:
        raise DpflError(
            f"The disk has {free >> 20} MB left, which is less than one letter may have: free some."
        )
    enough = "" if free >= needed else f"; kept replies of many runs may need {needed >> 20} MB"
    return f"{free >> 20} MB free{enough}"


def _server(charter: NodePolicy) -> str:
    address = charter.server.address
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise DpflError(
            f"server.address is {address!r}: give a host and a port, such as fl.example.org:9092."
        )
    authority = charter.folder / Path(charter.server.ca).expanduser()
    if not authority.is_file():
        raise DpflError(
            f"There is no certificate {authority}: get the server's ca.crt, and name it by "
            "server.ca."
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()
    except OSError as error:
        raise DpflError(
            f"The server {address} cannot be reached ({error.strerror or error}): is it running?"
        ) from None
    return f"{address} can be reached"


def leaving(charter: NodePolicy) -> Iterator[str]:
    """What an owner agrees to with this policy."""
    limits, allow, tell = charter.limits, charter.allow, charter.tell
    at = (
        f"at delta {limits.delta:g} by {limits.accountant}, for one {limits.unit} "
        f"({limits.neighbours})"
    )
    parts = {
        "in all": limits.epsilon,
        "a year": limits.epsilon_a_year,
        "a run": limits.epsilon_a_run,
    }
    most = ", ".join(
        f"{epsilon:g} {part}" for part, epsilon in parts.items() if epsilon is not None
    )
    yield f"noisy updates of models, and noisy answers to surveys: epsilon {most} at most, {at}"
    noise = (
        "secure noise" if tell.secure else "noise, in floating point where the server asks for it"
    )
    yield (
        f"each with {noise} of multiplier {allow.least_noise_multiplier:g} or more, clipped at "
        f"{allow.largest_clip:g} or less, "
        f"from batches of {allow.largest_sampling_rate:.0%} of the {limits.unit}s or fewer"
    )
    if charter.secure:
        yield from _summed(charter.secure)
    yield f"how many {limits.unit}s there are: {_size(charter)}"
    yield "its name, the form of its samples, the version of dpfl, and when and how long it works"
    yield (
        "signed statements of what its ledger holds, and how far it had come with every reply, "
        "to owners of joined runs"
    )
    yield (
        "how far the ledgers of other nodes had come, as they signed it, to owners of runs with "
        "these nodes"
    )
    if tell.trusted:
        yield "CLIPPED UPDATES WITHOUT NOISE, to a server that is trusted to add it"
    if tell.bare:
        yield "UPDATES WITHOUT ANY NOISE"


def staying(charter: NodePolicy) -> Iterator[str]:
    yield "samples, labels, identities, and anything that is computed from them without noise"
    if not (charter.tell.trusted or charter.tell.bare):
        yield (
            "losses, accuracies, counts and gradients, unless they have noise that the ledger "
            "pays for"
        )
    yield f"anything at all for runs of variants other than {', '.join(charter.allow.variants)}"
    yield (
        f"anything for orders that none of {len(charter.owners)} named owners signed, or beyond "
        "these limits"
    )
    if charter.secure:
        yield "what it adds to a secure sum, to anybody who has not the sum of all who are in it"
    yield "what the log, the ledger and the kept orders say"


def _summed(secure: SecureSumGroup) -> Iterator[str]:
    """A share of the noise hides nobody by itself: what must hold for it to be enough."""
    yield (
        "in runs with secure sums, numbers with a share of that noise, masked: sums over at least "
        f"{secure.least_survivors} of "
        f"{len(secure.members)} members are opened, and nothing else"
    )
    count = secure.least_colluders
    helpers = (
        f"up to {count} of them may help the server"
        if count
        else "none of them helps the server, or looks itself"
    )
    yield f"what that costs holds if {helpers}, and if the keys in secure.members are theirs"


def _size(charter: NodePolicy) -> str:
    size = charter.tell.size
    if isinstance(size, ConstantSize):
        return f"always said to be {size.constant}"
    return f"rounded up to {size.rounded}s" if isinstance(size, RoundedSize) else "exactly"
