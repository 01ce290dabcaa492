"""Nodes without a network: real services with folders, keys, ledgers and data of their own, and an
owner of runs who asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from torch import nn

from dpfl.client.descent.optimisers import SGD
from dpfl.client.task import ClientTask, LocalTraining
from dpfl.node.service import Service
from dpfl.privacy import Flat, Ledger, Poisson, Release
from dpfl.privacy.mechanisms.noises.secure_noise import SecureGaussian
from dpfl.protocol import messages, task_messages
from dpfl.protocol.keys import load_private, new_key, public_key_hex
from dpfl.protocol.proposal import Proposal
from dpfl.refusals import SENTENCES, RefusalReason
from dpfl.tasks import MultiClass
from tests.conftest import MODEL, small_source

OWNER = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
RUN, SAMPLES, STEPS, ROUNDS = "0123456789abcdef", 60, 2, 5
SIZE = 784 * 16 + 16 + 160 + 10
RELEASE = Release(Poisson(0.2), Flat(1.0), SecureGaussian(1.0))
EVENT = RELEASE.event(SAMPLES)
TASK = ClientTask(0, 1, STEPS, LocalTraining(SGD(0.1)), Release(), RELEASE, ROUNDS * STEPS)
PROPOSAL = Proposal(
    client=1,
    system="custom",
    variant="sound",
    unit="sample",
    neighbours="add/remove one",
    model=MODEL.name,
    options=MODEL.options,
    learning=MultiClass(10),
    shape=(1, 28, 28),
    schema="",
    epsilon=20.0,
    delta=1e-5,
    rounds=ROUNDS,
    accountant="rdp",
    noise="secure",
    federation=("a", "b"),
    events=((EVENT, ROUNDS * STEPS),),
)
POLICY: dict[str, Any] = {
    "name": "b",
    "data": {"name": "own.npz", "classes": 10},
    "owners": {"study": public_key_hex(OWNER.public_key())},
    "limits": {"epsilon": 30.0, "delta": 1e-5, "accountant": "rdp"},
    "allow": {
        "systems": ["custom"],
        "models": ["mlp", "linear", "transformer"],
        "least_noise_multiplier": 0.8,
        "largest_clip": 2.0,
        "most_steps": 4,
        "most_rounds": 10,
        "largest_sampling_rate": 0.5,
        "most_bytes": 1 << 21,
    },
    "tell": {"size": "exact"},
}


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """With what is None left out."""
    found = dict(base)
    for key, value in changes.items():
        nested = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
        found[key] = merged(found[key], value) if nested else value
    return {key: value for key, value in found.items() if value is not None}


def new_node(folder: Path, first: int = 0, **changes: Any) -> Path:
    """The folder of a node with a few images of its own; its policy, with changes by section."""
    folder.mkdir(parents=True)
    source = small_source()
    rows = slice(first, first + SAMPLES)
    np.savez(folder / "own.npz", x=source.train.x[rows].numpy(), y=source.train.y[rows].numpy())
    new_key(folder / "node.pem")
    return write_policy(folder, **changes)


def write_policy(folder: Path, **changes: Any) -> Path:
    path = folder / "policy.toml"
    path.write_bytes(tomli_w.dumps(merged(POLICY, changes)).encode())
    return path


def own_net(hidden: int) -> nn.Module:
    """A model that an owner brings."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, hidden), nn.Tanh(), nn.Linear(hidden, 10))


def vector(seed: int = 0) -> np.ndarray:
    return (0.05 * np.random.default_rng(seed).standard_normal(SIZE)).astype(np.float32)


def ask(
    kind: str,
    to: str = "b",
    run: str = RUN,
    key: Ed25519PrivateKey = OWNER,
    arrays: Any = None,
    **words: Any,
) -> bytes:
    return messages.write(
        {"kind": kind, "run": run, "to": to, "order": kind, **words}, arrays or {}, key
    )


def join(proposal: Proposal = PROPOSAL, **words: Any) -> bytes:
    return ask("join", **{"proposal": proposal.to_words(), **words})


def work(task: ClientTask = TASK, model: np.ndarray | None = None, **words: Any) -> bytes:
    arrays = {"model": vector() if model is None else model}
    return ask(
        "work",
        **{
            "order": task_messages.task_name(task),
            "task": task_messages.task_to_words(task),
            "arrays": arrays,
            **words,
        },
    )


def round_of(number: int, **changes: Any) -> ClientTask:
    return replace(TASK, round=number, **changes)


@dataclass
class Asked:
    """A node that was asked, and its answers as its own key signed them."""

    folder: Path
    service: Service

    @classmethod
    def open(cls, policy: Path) -> Asked:
        return cls(policy.parent, Service.open(policy))

    def __call__(self, message: bytes) -> messages.SignedMessage:
        answer = messages.read(
            self.service.answer(message),
            load_private(self.folder / "node.pem").public_key(),
            1 << 24,
        )
        assert answer.header["answers"] == messages.digest(message)
        assert answer.header["from"] == self.service.policy.name
        return answer

    def refused(self, message: bytes) -> str:
        answer = self(message)
        assert answer.header["kind"] == "refused", answer.header
        assert answer.header["sentence"] == SENTENCES[RefusalReason(answer.header["reason"])]
        assert not answer.arrays
        return str(answer.header["reason"])

    def rows(self) -> list[Any]:
        """All debits and plans of its ledger."""
        with closing(Ledger.read(self.folder / "ledger" / "b.sqlite")) as ledger:
            return [ledger.debits(), ledger.plans()]

    def spending(self) -> dict[Any, int]:
        with closing(Ledger.read(self.folder / "ledger" / "b.sqlite")) as ledger:
            return ledger.spending()

    def log(self) -> str:
        return (self.folder / "node.log").read_text()


Open = Callable[..., Asked]
"""Opens a node in the folder of a name."""
