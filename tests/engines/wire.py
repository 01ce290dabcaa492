"""A carrier on this machine with three nodes that are functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpfl.client.descent.optimisers import SGD
from dpfl.client.task import ClientReply, ClientTask, LocalTraining, RoundRequest
from dpfl.privacy import Flat, Gaussian, Poisson, Release
from dpfl.protocol import messages, task_messages
from dpfl.protocol.transport import Delivery
from tests.conftest import Clock

SIZE = 5
OWNER = Ed25519PrivateKey.generate()
KEYS = {name: Ed25519PrivateKey.generate() for name in ("a", "b", "c")}
Answer = Callable[[str, bytes, messages.SignedMessage], bytes | None]


def answered(
    name: str, asked: bytes, words: dict, arrays: dict | None = None, **changed: object
) -> bytes:
    message = messages.read(asked, OWNER.public_key(), 1 << 20)
    head = {
        "run": message.header["run"],
        "from": name,
        "order": message.header["order"],
        "answers": messages.digest(asked),
    }
    return messages.write({**head, **words, **changed}, arrays or {}, KEYS[name])


def good(name: str, asked: bytes, message: messages.SignedMessage) -> bytes:
    """A node's honest answer: an update of ones, times its place."""
    task = task_messages.task_from_words(message.header["task"])
    update = torch.full((SIZE,), float(task.client + 1))
    words, arrays = task_messages.reply_to_words(ClientReply(task.client, update))
    return answered(name, asked, {"kind": "reply", "reply": words}, arrays)


@dataclass
class Wire:
    """A carrier on this machine: nodes answer at once, by functions; `lost` letters of a name come
    back as lost first. Time passes where nothing comes, and nowhere else."""

    nodes_: dict[str, Answer]
    lost: dict[str, int] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    seen: list[tuple[str, str]] = field(default_factory=list)
    back: list[Delivery] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)

    def nodes(self) -> list[str]:
        return [f"at-{name}" for name in self.nodes_]

    def send(self, address: str, message: bytes) -> str:
        name, request_id = address.removeprefix("at-"), str(len(self.seen))
        head = messages.read(message, OWNER.public_key(), 1 << 20).header
        self.seen.append((name, head["kind"]))
        if name in self.silent:
            return request_id
        if head["kind"] == "ping":
            answer: bytes | None = answered(name, message, {"kind": "pong"})
        elif self.lost.get(name, 0):
            self.lost[name] -= 1
            answer = None
        else:
            answer = self.nodes_[name](
                name, message, messages.read(message, OWNER.public_key(), 1 << 20)
            )
        self.back.append(Delivery(address, request_id, answer))
        return request_id

    def receive(self, seconds: float) -> list[Delivery]:
        found, self.back = self.back, []
        if not found:
            self.clock.sleep(seconds)
        return found

    def close(self) -> None: ...


def round_request(round: int = 0, multiplier: float = 1.0) -> RoundRequest:
    samples = Release(Poisson(0.1), Flat(1.0), Gaussian(multiplier))
    task = ClientTask(round, 0, 3, LocalTraining(SGD(0.1)), Release(), samples)
    return RoundRequest(
        round, 3, tuple(replace(task, client=client) for client in range(3)), torch.zeros(SIZE)
    )
