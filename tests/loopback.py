"""A federation without a network: real nodes with policies, ledgers and data, and a carrier that
hands letters over.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from dpfl.config.experiment import Experiment
from dpfl.node.service import Service
from dpfl.protocol import keys
from dpfl.protocol.transport import Delivery
from dpfl.run.over_nodes.nodes import ServerTerms
from tests.conftest import PATIENCE


class Loopback:
    """Letters are answered when they are asked for, one after another."""

    def __init__(self, services: Mapping[str, Service]) -> None:
        self.services = dict(services)
        self.sent: list[tuple[str, str, bytes]] = []

    def nodes(self) -> list[str]:
        return list(self.services)

    def send(self, address: str, message: bytes) -> str:
        self.sent.append((address, str(len(self.sent)), message))
        return self.sent[-1][1]

    def receive(self, seconds: float) -> list[Delivery]:
        waiting, self.sent = self.sent, []
        return [
            Delivery(address, request_id, self.services[address].answer(message))
            for address, request_id, message in waiting
        ]

    def close(self) -> None: ...


def policy(
    sections: Mapping[str, Any], name: str, owner: str, **changed: Mapping[str, Any]
) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "limits": {"epsilon": 8.0, "delta": 1e-5},
        "allow": {"systems": ["*"], "models": ["mlp"]},
        "tell": {"size": "exact"},
    }
    for section, words in changed.items():
        usual[section] = usual.get(section, {}) | dict(words)
    return {"name": name, **sections, "owners": {"server": owner}, **usual}


def federation(
    folder: Path, experiment: Experiment, clients: int = 3, **changed: Mapping[str, Any]
) -> tuple[Loopback, ServerTerms]:
    """Its nodes, opened, and the terms of a server that they take orders from."""
    folder.mkdir(parents=True)
    keys.new_key(folder / "owner.pem")
    owner, services, dealt = (
        keys.load_public(folder / "owner.pem.pub"),
        {},
        experiment.node_sections(clients),
    )
    for name in dealt:
        (folder / name).mkdir()
        keys.new_key(folder / name / "node.pem")
    members = {name: keys.load_public(folder / name / "node.pem.pub") for name in dealt}
    if "secure" in changed:
        changed["secure"] = {"members": members, **changed["secure"]}
    for name, sections in dealt.items():
        (folder / name / "policy.toml").write_text(
            tomli_w.dumps(policy(sections, name, owner, **changed))
        )
        services[name] = Service.open(folder / name / "policy.toml")
    public = {
        name: Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
        for name, key in members.items()
    }
    return Loopback(services), ServerTerms(
        keys.load_private(folder / "owner.pem"), public, deadline=PATIENCE, joining=PATIENCE
    )
