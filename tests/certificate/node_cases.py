"""A run over three nodes, certified, with the statements that its nodes signed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpfl.certificate import verify
from dpfl.config.experiment import parse
from dpfl.protocol.keys import load_private, public_key_hex, sign
from tests.loopback import federation

BASE = {
    "seed": 3,
    "data": {"name": "mnist-sample", "partition": "iid", "clients": 3},
    "model": {"name": "mlp", "hidden": 8},
    "algorithm": {"name": "fedavg-dp", "tau": 2, "sampling_rate": 0.01},
    "budget": {"epsilon": 4.0, "delta": 1e-5, "rounds": 2},
    "privacy": {"accountant": "rdp"},
}


NAMES = ("node-0", "node-1", "node-2")


def serve(root: Path, said: dict[str, Any] = BASE, **changed: Any) -> None:
    """A run over three nodes, in `run`, with the nodes' folders in `nodes`."""
    transport, terms = federation(root / "nodes", parse(said), **changed)
    listed = {name: public_key_hex(key) for name, key in terms.nodes.items()}
    parse(said | {"server": {"nodes": listed}}).serve(transport, terms, root / "run")
    for service in transport.services.values():
        service.close()


@dataclass(frozen=True)
class Case:
    """A certified run over nodes, with the folder of the run or without it."""

    root: Path
    alone: bool

    @property
    def file(self) -> Path:
        return self.root / ("alone.json" if self.alone else "run/certificate.json")

    def statement(self, name: str) -> Path:
        return self.root / "run" / "nodes" / f"{name}.json"

    @property
    def all(self) -> list[Path]:
        return [self.statement(name) for name in NAMES]

    def key(self, name: str) -> Path:
        return self.root / "nodes" / name / "node.pem"

    def findings(self, *files: Path) -> list[str]:
        return verify(self.file, nodes=files or self.all).findings

    def say(
        self, name: str, change: Callable[[dict[str, Any]], None], key: Path | None = None
    ) -> Path:
        """The node's statement with a change, signed again, by default with its own key; without
        the head of its ledger, as older ones are, since that would tell the change."""
        words = json.loads(self.statement(name).read_text())["statement"]
        words.pop("ledger_head")
        change(words)
        signer = load_private(key or self.key(name))
        forged = self.root / "forged.json"
        forged.write_text(json.dumps({"statement": words, "signature": sign(words, signer)}))
        return forged
