"""A federation of real processes, and servers that spoil letters or sign what they like."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from dpfl import algorithms
from dpfl.client.task import ClientTask, SecureSumTerms
from dpfl.config.experiment import parse
from dpfl.engines.node_channel import NodeChannel
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.protocol import messages, task_messages
from dpfl.protocol.keys import load_private
from dpfl.protocol.messages import SignedMessage
from dpfl.protocol.transport import Delivery
from dpfl.run.over_nodes.nodes import MOST_ANSWER, ServerTerms
from dpfl.transports.flower.flower_transport import FlowerTransport
from dpfl.transports.flower.local_federation import refuse_ended, run_federation, write_layout
from dpfl.transports.flower.processes import register, superlink
from dpfl.transports.flower.server import NodeKeys, ServerKeys
from tests.conftest import PATIENCE

NODES = ("node-0", "node-1", "node-2")
BASE: dict[str, Any] = {
    "seed": 5,
    "data": {"name": "mnist-sample", "partition": "iid", "clients": 3},
    "model": {"name": "mlp", "hidden": 8},
    "algorithm": {"name": "fedavg-dp", "tau": 2, "sampling_rate": 0.01, "noise_multiplier": 0.8},
    "budget": {"epsilon": 20.0, "delta": 1e-5, "rounds": 2},
    "privacy": {"entropy": "keyed", "accountant": "rdp"},
}
SECURE = BASE | {
    "algorithm": BASE["algorithm"] | {"tau": 1},
    "privacy": BASE["privacy"] | {"aggregation": "secure", "survivors": 2},
    "budget": BASE["budget"] | {"rounds": 4},
}

IN_MEMORY = ":flwr-in-memory:"
"""Flower's name of a SuperLink's state that is in no file. The federation of `conftest.py` has its
state in a file, and restarts its SuperLink.
"""


class Whole:
    """A SuperLink and three nodes; every run has a post of its own."""

    def __init__(self, folder: Path, until: ExitStack) -> None:
        self.folder, dealt = folder, parse(BASE).node_sections(3)
        limits = {"epsilon": 100.0, "delta": 1e-5, "accountant": "rdp"}
        allow, tell = (
            {"systems": ["fedavg-dp"], "models": ["mlp"]},
            {"size": "exact", "entropy": "keyed", "secure": False},
        )
        address, lines = write_layout(
            folder, dealt, limits, allow, tell, {"least_survivors": 2, "least_colluders": 0}
        )
        self.processes = until.enter_context(run_federation(folder, lines))
        self.keys, (host, _, port) = ServerKeys(folder / "server"), address.rpartition(":")
        link = superlink(folder / "server", host, int(port), self.keys)
        link.arguments = [
            IN_MEMORY if word.endswith(".sqlite") else word for word in link.arguments
        ]
        self.link = until.enter_context(link)
        nodes = {name: NodeKeys.parse(name, line) for name, line in lines.items()}
        for name, node in nodes.items():
            register(self.link.address, self.keys.authority, node.carrier, name)
        owner, known = (
            load_private(folder / "server" / "owner.pem"),
            {name: one.message_key for name, one in nodes.items()},
        )
        self.terms = ServerTerms(owner, known, deadline=PATIENCE, joining=PATIENCE)

    def transport(self) -> FlowerTransport:
        refuse_ended(self.folder, self.processes, 0.0)
        return FlowerTransport(
            self.link.address, self.keys.authority, self.link.secret, MOST_ANSWER
        )


class Spoiled:
    """A post that spoils the answers to some letters, and does not carry those letters: by node,
    kind and round.
    """

    def __init__(
        self, transport: FlowerTransport, terms: ServerTerms, spoiled: set[tuple[str, str, str]]
    ) -> None:
        self._post, self._spoiled, self._key = transport, spoiled, terms.key.public_key()
        self._back: list[Delivery] = []
        self.nodes, self.close = transport.nodes, transport.close

    def send(self, address: str, message: bytes) -> str:
        head = messages.read(message, self._key, MOST_ANSWER).header
        if (head["to"], head["kind"], head["order"].split("/")[0]) not in self._spoiled:
            return self._post.send(address, message)
        self._back.append(Delivery(address, head["to"], b"spoiled"))
        return str(head["to"])

    def receive(self, seconds: float) -> list[Delivery]:
        back, self._back = self._back, []
        return back or self._post.receive(seconds)


class Liar:
    """A server that signs what it likes, to one node or to all; says what each answered, in a
    word.
    """

    size = 784 * 8 + 8 + 8 * 10 + 10

    def __init__(self, mail: NodeChannel) -> None:
        self.mail = mail
        self.answers: list[SignedMessage] = []
        self.system = algorithms.from_name(**SECURE["algorithm"]).with_secure_sums(NoiseShares(2))

    def task(self, name: str, round: int = 0, **changes: Any) -> ClientTask:
        given = {
            "samples": self.system.samples,
            "secure_sum": SecureSumTerms(1.0, 1000.0, 3),
            **changes,
        }
        return ClientTask(
            round, NODES.index(name), 1, self.system.local, self.system.clients, **given
        )

    def message(
        self, name: str, kind: str, task_name: str, words: Mapping[str, Any], arrays: Any = None
    ) -> tuple[str, bytes]:
        return name, self.mail.message(name, kind, task_name, words, arrays)

    def work(self, task: ClientTask, session: str, model: float = 0.0) -> tuple[str, bytes]:
        arrays = {"model": np.full(self.size, model, np.float32)}
        return self.message(
            NODES[task.client],
            "work",
            task_messages.task_name(task, session),
            {"task": task_messages.task_to_words(task)},
            arrays,
        )

    def told(self, *asked: tuple[str, bytes]) -> list[str]:
        """All at once, in no order; a node's answers are those that its key signed."""
        transport, waiting = self.mail.transport, dict[str, int]()
        for number, (name, message) in enumerate(asked):
            waiting[transport.send(self.mail.addresses[name], message)] = number
        answers, until = dict[int, SignedMessage](), time.monotonic() + PATIENCE
        while len(answers) < len(asked):
            assert time.monotonic() < until, f"no answer within {PATIENCE:g} s"
            for delivery in transport.receive(1.0):
                number = waiting[delivery.request_id]
                assert delivery.message is not None
                answers[number] = messages.read(
                    delivery.message, self.mail.nodes[asked[number][0]], MOST_ANSWER
                )
        self.answers = [answers[number] for number in range(len(asked))]
        return [str(answer.header.get("reason", answer.header["kind"])) for answer in self.answers]
