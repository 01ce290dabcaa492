"""An engine in this process, which the others are compared with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dpfl.engines import SerialEngine, local_engine
from dpfl.engines.node_channel import NodeChannel
from dpfl.engines.remote import RemoteEngine, RemoteNode
from dpfl.privacy.ledger.client_ledgers import ClientLedgers
from tests.engines.clients import context
from tests.engines.wire import KEYS, OWNER, SIZE, Wire
from tests.node.conftest import opened  # noqa: F401


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[SerialEngine]:
    engine = local_engine(context(tmp_path), 0, workers=1)
    assert isinstance(engine, SerialEngine)
    yield engine
    engine.close()


@pytest.fixture
def make(tmp_path, monkeypatch):
    def made(wired: Wire, seconds: float = 60.0, least: int = 1) -> RemoteEngine:
        monkeypatch.setattr("dpfl.engines.node_channel.time", wired.clock)
        keys = {name: key.public_key() for name, key in KEYS.items()}
        correspondence = NodeChannel(wired, "00" * 16, OWNER, keys, 1 << 20)
        members = [RemoteNode(name, place, 100) for place, name in enumerate(KEYS)]
        ledgers = ClientLedgers(tmp_path, tuple(KEYS), "sample", "add or remove one")
        return RemoteEngine(correspondence, members, "run", ledgers, seconds, least, SIZE)

    return made
