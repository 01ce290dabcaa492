"""One federation of real processes on loopback for all tests of this folder: a SuperLink, and three
nodes that echo letters.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpfl.protocol.transport import Delivery
from dpfl.transports.flower.flower_transport import FlowerTransport
from dpfl.transports.flower.parent import parent_variable
from dpfl.transports.flower.processes import FlowerProcess, free_port, register, superlink
from dpfl.transports.flower.tls_keys import ServerKeys, node_key, server_keys
from tests.conftest import PATIENCE, wait_until
from tests.transports.flower.echo import MOST

NODES = ("north", "south", "west")


class Echo:
    """A node of the federation as a process of its own."""

    def __init__(self, folder: Path, link: FlowerProcess, keys: ServerKeys) -> None:
        self.folder, self.link, self.keys = folder, link, keys
        self.key = folder / "carrier.key"
        self.line = node_key(self.key)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        for name in ("leave", "waits"):
            (self.folder / name).unlink(missing_ok=True)
        arguments = (str(self.folder), self.link.address, str(self.keys.authority), str(self.key))
        command = [sys.executable, "-m", "tests.transports.flower.echo", *arguments]
        self.process = subprocess.Popen(
            command, env={**os.environ, **parent_variable()}, start_new_session=True
        )

    def supernode(self) -> int:
        """Its process id."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int(wait_until(children.read_text).split()[0])

    def log(self) -> str:
        """What its SuperNode said."""
        return (self.folder / "supernode.log").read_text()

    def begun(self, name: str) -> None:
        """Waits until it is at the letter `hold NAME`."""
        wait_until((self.folder / f"{name}.begun").exists)

    def let_go(self, name: str) -> None:
        """It may answer the letter `hold NAME`."""
        (self.folder / f"{name}.go").touch()

    def leave(self) -> None:
        """It was told to stop, has lingered for long enough, and ends."""
        assert self.process is not None
        (self.folder / "leave").touch()
        assert self.process.wait(PATIENCE) == 0


class Federation:
    def __init__(self, folder: Path) -> None:
        self.folder, self.keys = folder, server_keys(folder / "keys")
        self.link = superlink(folder / "link", "127.0.0.1", free_port(), self.keys)
        self.got: dict[str, Delivery] = {}
        self.nodes = [Echo(folder / name, self.link, self.keys) for name in NODES]
        self.link.launch()

    def start(self) -> None:
        for node in self.nodes:
            node.start()
        self.link.ready()
        for node in self.nodes:
            register(self.link.address, self.keys.authority, node.line, node.folder.name)
        self.transport = FlowerTransport(
            self.link.address, self.keys.authority, self.link.secret, MOST
        )
        wait_until(lambda: len(self.transport.nodes()) == len(NODES))

    def stop(self) -> None:
        for node in self.nodes:
            if node.process is not None:
                node.process.kill()
                node.process.wait()
        self.link.stop()

    def asked(self, address: str, message: bytes) -> Delivery:
        return self.answered(self.transport.send(address, message))

    def answered(self, request_id: str) -> Delivery:
        until = time.monotonic() + PATIENCE
        while request_id not in self.got:
            assert time.monotonic() < until, f"no answer within {PATIENCE:g} s"
            self.got |= {delivery.request_id: delivery for delivery in self.transport.receive(1.0)}
        return self.got.pop(request_id)


@pytest.fixture(scope="package")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    made = Federation(tmp_path_factory.mktemp("federation"))
    try:
        made.start()
        yield made
    finally:
        made.stop()
