"""Runs over nodes on other machines: who joins, on what terms, and the statement that each node
signs at the end.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from dpfl.engines.head_memory import FILE as HEADS
from dpfl.engines.head_memory import HeadMemory
from dpfl.engines.node_channel import InvalidReply, NodeChannel, refusal_of
from dpfl.engines.remote import SILENT, RemoteEngine, RemoteNode, is_kind
from dpfl.engines.secure_sum import SecureSumServer
from dpfl.errors import DpflError
from dpfl.privacy.ledger.client_ledgers import ClientLedgers
from dpfl.protocol.head_words import head_from_words
from dpfl.protocol.keys import public_key_hex
from dpfl.protocol.messages import SignedMessage
from dpfl.protocol.transport import Transport
from dpfl.refusals import ProtocolError
from dpfl.run.propose import Propose
from dpfl.run.records.folder import STATEMENTS, RunFolder
from dpfl.secagg import SumGroup

MOST_ANSWER = 1 << 24
"""The most bytes of a node's answer without the numbers of a model. A longer one is not read."""
NUMBER = 16
"""Bytes that are allowed for each number of a model: for an update, and what may be beside it."""
MOST_SIZE = 1 << 40
ABSENT = "it did not join when the run began"
MEMBERS = "nodes.json"


@dataclass(frozen=True)
class ServerTerms:
    """The terms of a server.

    Attributes:
        key: The key that signs the server's messages.
        nodes: The public key of each node, by its name. Answers of others do not count.
        deadline: Seconds that the server waits for the answers of a round.
        joining: Seconds that the server waits for answers to a proposal, and at the end.
        least: The least number of nodes that a run needs.
        heads: Where the server remembers, from run to run, which ledger heads nodes signed. None
            means the run's folder.
    """

    key: Ed25519PrivateKey
    nodes: Mapping[str, Ed25519PublicKey]
    deadline: float = 600.0
    joining: float = 120.0
    least: int = 1
    heads: Path | None = None

    @property
    def public(self) -> list[str]:
        """The nodes' keys as text, in the order of `nodes`."""
        return [public_key_hex(key) for key in self.nodes.values()]


@dataclass(frozen=True)
class JoinRequests:
    """Asks nodes to join a run, and shows each node the ledger heads that it signed before, as far
    as this server and the other nodes remember them.

    Attributes:
        channel: Signs messages and checks answers.
        memory: The heads that nodes signed.
        proposal: Makes the proposal for the node at a place in the list.
        seconds: How long to wait for answers.
    """

    channel: NodeChannel
    memory: HeadMemory
    proposal: Propose
    seconds: float

    def __call__(self, names: Collection[str]) -> dict[str, SignedMessage | InvalidReply]:
        """Asks nodes to join.

        Where an answer brings a head of another node that this server did not remember, that node
        is asked again and shown it as well.

        Args:
            names: The nodes to ask.

        Returns:
            The answer of each node that answered.
        """
        signatures = {name: {head.signature for head in self.memory.of(name)} for name in names}
        answers = self._ask(names)
        late = [
            name for name, answer in answers.items() if self._more(name, signatures[name], answer)
        ]
        return answers | self._ask(late) if late else answers

    def _ask(self, names: Collection[str]) -> dict[str, SignedMessage | InvalidReply]:
        places = list(self.memory.keys)
        requests, heads_for = {}, {name: self.memory.shown_to(name) for name in names}
        for name, heads in heads_for.items():
            words = {"proposal": self.proposal(places.index(name)).to_words()} | (
                {"heads": heads} if heads else {}
            )
            requests[name] = self.channel.message(name, "join", "join", words)
        answers = self.channel.ask(requests, self.seconds)
        for name, answer in answers.items():
            if isinstance(answer, SignedMessage) and is_kind(answer, "joined"):
                self.memory.accept(name, heads_for[name], answer)
        self.memory.save()
        return answers

    def _more(self, name: str, signatures: set[str], answer: SignedMessage | InvalidReply) -> bool:
        """Says whether the memory holds a head that the node was not shown, and that is not the one
        in its answer.
        """
        if not is_kind(answer, "joined") or not isinstance(answer, SignedMessage):
            return False
        with suppress(ProtocolError):
            signatures = signatures | {head_from_words(answer.header.get("ledger_head")).signature}
        return any(head.signature not in signatures for head in self.memory.of(name))


@dataclass(frozen=True)
class JoinedNodes:
    """The nodes of one run, as a `NodePool`.

    Attributes:
        channel: Signs messages and checks answers.
        terms: The terms of the server.
        members: The nodes that joined, with the sizes that they declared.
        away: By name, why each of the other nodes did not join.
        group: The nodes that sum together, where the server gets sums only.
        joining: Asks a node to join again after it was restarted.
    """

    channel: NodeChannel
    terms: ServerTerms
    members: tuple[RemoteNode, ...]
    away: Mapping[str, str] = field(default_factory=dict)
    group: SumGroup | None = None
    joining: JoinRequests | None = None

    @property
    def nonce(self) -> str:
        """The random name that the nodes know the run by."""
        return self.channel.run

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence for each node that did not join."""
        return tuple(f"{name} takes no part: {why}" for name, why in self.away.items())

    def engine(
        self, run: str, ledgers: ClientLedgers | None, folder: RunFolder, size: int
    ) -> RemoteEngine:
        """Builds the engine that sends rounds to the nodes, and writes down who joined.

        Args:
            run: The name of the run.
            ledgers: Where the server counts what it orders; None if no client pays by itself.
            folder: The run's folder.
            size: How many numbers the model has.

        Returns:
            The engine.
        """
        self.channel.most = self.channel.transport.most = MOST_ANSWER + NUMBER * size
        folder.write_json(
            MEMBERS,
            {member.name: {"place": member.place, "size": member.size} for member in self.members},
        )
        deadline, joining = self.terms.deadline, self.terms.joining
        sums = SecureSumServer(self.channel, self.group, deadline, joining) if self.group else None
        if (memory := self.channel.memory) and memory.path is None:
            memory.path = folder.file(HEADS)
        return RemoteEngine(
            self.channel,
            self.members,
            run,
            ledgers,
            deadline,
            self.terms.least,
            size,
            sums,
            self.joining,
        )

    def collect_statements(self, folder: RunFolder) -> None:
        """Asks each node for its signed statement, and stores it as it came.

        Whoever has a node's public key can check its statement without this server.

        Args:
            folder: The run's folder.
        """
        message, memory = self.channel.message, self.channel.memory
        folder.file(STATEMENTS).mkdir(exist_ok=True)
        heads_for = {
            member.name: memory.shown_to(member.name) if memory else [] for member in self.members
        }
        words = {name: {"heads": heads} if heads else {} for name, heads in heads_for.items()}
        requests = {
            name: message(name, "ask-statement", "end/statement", words[name]) for name in words
        }
        for name, answer in self.channel.ask(requests, self.terms.joining).items():
            statement = (
                answer.header.get("statement") if isinstance(answer, SignedMessage) else None
            )
            if isinstance(statement, dict):
                folder.write_json(f"{STATEMENTS}/{name}.json", statement)


def join_nodes(
    transport: Transport, nonce: str, terms: ServerTerms, proposal: Propose
) -> JoinedNodes:
    """Asks all nodes of a server to join a new run.

    Args:
        transport: Carries the messages.
        nonce: The random name that the nodes will know the run by.
        terms: The terms of the server.
        proposal: Makes the proposal for the node at a place in the list.

    Returns:
        The nodes that joined.

    Raises:
        DpflError: Too few nodes joined; or not all of them, where nodes sum together.
    """
    names = list(terms.nodes)
    channel, joining = _joining(transport, nonce, terms, proposal, terms.heads)
    answers = joining(names)
    sizes = {name: _size(answers.get(name)) for name in names}
    members = tuple(
        RemoteNode(name, names.index(name), size)
        for name, size in sizes.items()
        if isinstance(size, int)
    )
    away = {name: why for name, why in sizes.items() if isinstance(why, str)}
    if len(members) < terms.least:
        raise DpflError(
            f"{len(members)} of {len(names)} nodes joined, but engine.least_replies asks for "
            f"{terms.least}. Start the missing nodes, then start the run again. "
            + "; ".join(f"{name}: {why}" for name, why in away.items())
        )
    group = group_of(nonce, terms, proposal)
    if group and away:
        raise DpflError(
            "Not every member of the secure sums joined: "
                + "; ".join(f"{name}: {why}" for name, why in away.items())
            + ". Start again when they can, or remove them from the experiment and the policies."
        )  # fmt: skip
    return JoinedNodes(channel, terms, members, away, group, joining)


def _joining(
    transport: Transport, nonce: str, terms: ServerTerms, proposal: Propose, heads: Path | None
) -> tuple[NodeChannel, JoinRequests]:  # fmt: skip
    memory = HeadMemory(dict(zip(terms.nodes, terms.public, strict=True)), heads)
    channel = NodeChannel(transport, nonce, terms.key, terms.nodes, MOST_ANSWER, memory)
    return channel, JoinRequests(channel, memory, proposal, terms.joining)


def group_of(nonce: str, terms: ServerTerms, proposal: Propose) -> SumGroup | None:
    """Builds the group of nodes that sum together, as every node of the run derives it.

    Args:
        nonce: The random name that the nodes know the run by.
        terms: The terms of the server.
        proposal: Makes the proposal for the node at a place in the list.

    Returns:
        The group; None where the server gets updates.
    """
    first = proposal(0)
    if first.sums is None:
        return None
    identities = dict(zip(terms.nodes, terms.public, strict=True))
    return SumGroup(
        first.together(nonce, public_key_hex(terms.key.public_key())),
        identities,
        first.sums.survivors,
        first.sums.colluders,
    )


def rejoin_nodes(
    transport: Transport, terms: ServerTerms, folder: RunFolder, proposal: Propose
) -> JoinedNodes:
    """Finds the nodes of a run that is resumed: those that joined it when it began.

    A node that is away may come back in any round. Nodes that sum together agree on new keys.

    Args:
        transport: Carries the messages.
        terms: The terms of the server.
        folder: The run's folder, which says who joined.
        proposal: Makes the proposal for the node at a place in the list.

    Returns:
        The nodes of the run.

    Raises:
        DpflError: The folder does not say who joined, or the server has no key of one of them.
    """
    nonce, member_records = (
        folder.experiment().get("run", {}).get("nonce"),
        folder.json(MEMBERS) or {},
    )
    if not isinstance(nonce, str) or not re.fullmatch("[0-9a-f]{32}", nonce):
        raise DpflError(
            f"The record in {folder.path} lacks the run's id at the nodes: start a new run."
        )
    try:
        members = tuple(
            RemoteNode(name, int(record["place"]), int(record["size"]))
            for name, record in member_records.items()
        )
    except (KeyError, TypeError, ValueError):
        members = ()
    if not members:
        raise DpflError(
            f"{folder.file(MEMBERS)} does not say who joined the run: bring it back, or start a "
            "new run."
        )
    if unknown := [member.name for member in members if member.name not in terms.nodes]:
        raise DpflError(
            f"The experiment has no key of the node {unknown[0]}, which joined the run: list it "
            "again."
        )
    away = {name: ABSENT for name in terms.nodes if name not in member_records}
    heads = terms.heads or folder.file(HEADS)
    channel, joining = _joining(transport, nonce, terms, proposal, heads)
    group = group_of(nonce, terms, proposal)
    return JoinedNodes(channel, terms, members, away, group, joining)


def _size(answer: SignedMessage | InvalidReply | None) -> int | str:
    """Reads the size that a node declared when it joined, or why it did not join."""
    if answer is None:
        return SILENT
    if isinstance(answer, InvalidReply):
        return answer.reason
    if answer.header.get("kind") == "refused":
        return refusal_of(answer.header)
    size = answer.header.get("size")
    if answer.header.get("kind") == "joined" and type(size) is int and 0 < size < MOST_SIZE:
        return size
    return "its answer is not one to a proposal"
