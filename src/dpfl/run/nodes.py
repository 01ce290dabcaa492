"""A run over nodes elsewhere: who joins, on what terms, and what each of them says at the end that
it spent.
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
from dpfl.protocol.keys import raw
from dpfl.protocol.messages import SignedMessage
from dpfl.protocol.transport import Transport
from dpfl.refusals import ProtocolError
from dpfl.run.folder import STATEMENTS, RunFolder
from dpfl.run.propose import Propose
from dpfl.secagg import SumGroup

MOST_ANSWER = 1 << 24
"""Bytes of a letter, beyond which a node's answer is not looked at, beside those of a model."""
NUMBER = 16
"""Bytes for each number of a model: an update, and what may be beside it."""
MOST_SIZE = 1 << 40
ABSENT = "it did not join when the run began"
MEMBERS = "nodes.json"


@dataclass(frozen=True)
class ServerTerms:
    """Of the server: whose orders they are, whose answers count, how long they are waited for and
    how many are needed.
    """

    key: Ed25519PrivateKey
    nodes: Mapping[str, Ed25519PublicKey]
    deadline: float = 600.0
    joining: float = 120.0
    least: int = 1
    heads: Path | None = None
    """Where the server remembers what nodes signed, from run to run; the run's folder, where
    nothing is said.
    """

    @property
    def public(self) -> list[str]:
        """The nodes' keys, in the order of their names, as words."""
        return [raw(key) for key in self.nodes.values()]


@dataclass(frozen=True)
class JoinRequests:
    """Asks nodes to join a run, and shows each what it signed, as far as this server and the other
    nodes remember.
    """

    correspondence: NodeChannel
    memory: HeadMemory
    proposal: Propose
    seconds: float

    def __call__(self, names: Collection[str]) -> dict[str, SignedMessage | InvalidReply]:
        """The answers of those that answered. A head of a node that only another node remembered is
        shown to it as well.
        """
        shown = {name: {one.signature for one in self.memory.of(name)} for name in names}
        answers = self._ask(names)
        late = [name for name, answer in answers.items() if self._more(name, shown[name], answer)]
        return answers | self._ask(late) if late else answers

    def _ask(self, names: Collection[str]) -> dict[str, SignedMessage | InvalidReply]:
        places = list(self.memory.keys)
        asked, shown = {}, {name: self.memory.shown_to(name) for name in names}
        for name, heads in shown.items():
            words = {"proposal": self.proposal(places.index(name)).to_words()} | (
                {"heads": heads} if heads else {}
            )
            asked[name] = self.correspondence.message(name, "join", "join", words)
        answers = self.correspondence.ask(asked, self.seconds)
        for name, answer in answers.items():
            if isinstance(answer, SignedMessage) and is_kind(answer, "joined"):
                self.memory.accept(name, shown[name], answer)
        self.memory.save()
        return answers

    def _more(self, name: str, shown: set[str], answer: SignedMessage | InvalidReply) -> bool:
        """Whether there is a head that the node was not shown, and that is not the one that
        answered.
        """
        if not is_kind(answer, "joined") or not isinstance(answer, SignedMessage):
            return False
        with suppress(ProtocolError):
            shown = shown | {head_from_words(answer.head.get("ledger_head")).signature}
        return any(one.signature not in shown for one in self.memory.of(name))


@dataclass(frozen=True)
class JoinedNodes:
    """The nodes of one run, as a `Host`: those that joined, and why others did not."""

    correspondence: NodeChannel
    terms: ServerTerms
    members: tuple[RemoteNode, ...]
    away: Mapping[str, str] = field(default_factory=dict)
    group: SumGroup | None = None
    """Who sums together, where the server gets sums only."""
    joining: JoinRequests | None = None

    @property
    def nonce(self) -> str:
        return self.correspondence.run

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(f"{name} takes no part: {why}" for name, why in self.away.items())

    def engine(
        self, run: str, ledgers: ClientLedgers | None, folder: RunFolder, size: int
    ) -> RemoteEngine:
        self.correspondence.most = self.correspondence.transport.most = MOST_ANSWER + NUMBER * size
        folder.write_json(
            MEMBERS,
            {member.name: {"place": member.place, "size": member.size} for member in self.members},
        )
        deadline, joining = self.terms.deadline, self.terms.joining
        sums = (
            SecureSumServer(self.correspondence, self.group, deadline, joining)
            if self.group
            else None
        )
        if (memory := self.correspondence.memory) and memory.path is None:
            memory.path = folder.file(HEADS)
        return RemoteEngine(
            self.correspondence,
            self.members,
            run,
            ledgers,
            deadline,
            self.terms.least,
            size,
            sums,
            self.joining,
        )

    def part(self, folder: RunFolder) -> None:
        """Their signed statements, as they came: whoever has a node's public key can check them
        without this server.
        """
        letter, memory = self.correspondence.message, self.correspondence.memory
        folder.file(STATEMENTS).mkdir(exist_ok=True)
        shown = {
            member.name: memory.shown_to(member.name) if memory else [] for member in self.members
        }
        words = {name: {"heads": heads} if heads else {} for name, heads in shown.items()}
        asked = {
            name: letter(name, "ask-statement", "end/statement", words[name]) for name in words
        }
        for name, answer in self.correspondence.ask(asked, self.terms.joining).items():
            said = answer.head.get("statement") if isinstance(answer, SignedMessage) else None
            if isinstance(said, dict):
                folder.write_json(f"{STATEMENTS}/{name}.json", said)


def gather(post: Transport, nonce: str, terms: ServerTerms, proposal: Propose) -> JoinedNodes:
    """All that are listed are asked; the run goes on with those that join, if they are enough."""
    names = list(terms.nodes)
    correspondence, joining = _joining(post, nonce, terms, proposal, terms.heads)
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
            f"{len(members)} of {len(names)} nodes joined, where {terms.least} are needed: "
            + "; ".join(f"{name}: {why}" for name, why in away.items())
        )
    group = group_of(nonce, terms, proposal)
    if group and away:
        raise DpflError(
            "Of those who sum together, some did not "
                "join: " + "; ".join(f"{name}: {why}" for name, why in away.items())
            + ". Start again when they can, or take them off the list, here and in the policies."
        )  # fmt: skip
    return JoinedNodes(correspondence, terms, members, away, group, joining)


def _joining(
    post: Transport, nonce: str, terms: ServerTerms, proposal: Propose, heads: Path | None
) -> tuple[NodeChannel, JoinRequests]:  # fmt: skip
    memory = HeadMemory(dict(zip(terms.nodes, terms.public, strict=True)), heads)
    correspondence = NodeChannel(post, nonce, terms.key, terms.nodes, MOST_ANSWER, memory)
    return correspondence, JoinRequests(correspondence, memory, proposal, terms.joining)


def group_of(nonce: str, terms: ServerTerms, proposal: Propose) -> SumGroup | None:
    """Who sums together, as every node of the run knows it; nobody, where the server gets
    updates.
    """
    said = proposal(0)
    if said.sums is None:
        return None
    identities = dict(zip(terms.nodes, terms.public, strict=True))
    return SumGroup(
        said.together(nonce, raw(terms.key.public_key())),
        identities,
        said.sums.survivors,
        said.sums.colluders,
    )


def gather_again(
    post: Transport, terms: ServerTerms, folder: RunFolder, proposal: Propose
) -> JoinedNodes:
    """Of a run that goes on: those that joined before; who is away may come back. Those who sum
    together by the `proposal` agree on new keys."""
    nonce, told = folder.experiment().get("run", {}).get("nonce"), folder.json(MEMBERS) or {}
    if not isinstance(nonce, str) or not re.fullmatch("[0-9a-f]{32}", nonce):
        raise DpflError(
            f"The record in {folder.path} does not say what nodes know its run by: start a new one."
        )
    try:
        members = tuple(
            RemoteNode(name, int(one["place"]), int(one["size"])) for name, one in told.items()
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
    away = {name: ABSENT for name in terms.nodes if name not in told}
    correspondence, joining = _joining(
        post, nonce, terms, proposal, terms.heads or folder.file(HEADS)
    )
    return JoinedNodes(
        correspondence, terms, members, away, group_of(nonce, terms, proposal), joining
    )


def _size(answer: SignedMessage | InvalidReply | None) -> int | str:
    """What a node that joined declared, or why it did not join."""
    if answer is None:
        return SILENT
    if isinstance(answer, InvalidReply):
        return answer.reason
    if answer.head.get("kind") == "refused":
        return refusal_of(answer.head)
    size = answer.head.get("size")
    if answer.head.get("kind") == "joined" and type(size) is int and 0 < size < MOST_SIZE:
        return size
    return "its answer is not one to a proposal"
