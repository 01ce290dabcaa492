"""A node as its owner starts it, in a real federation: it answers its owner's letters, shows what
it did, ends when asked.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from dpfl.cli.app import app
from dpfl.errors import DpflError
from dpfl.privacy import Ledger
from dpfl.protocol import messages
from dpfl.protocol.keys import load_private
from dpfl.transports.flower import daemon
from dpfl.transports.flower.parent import parent_variable
from dpfl.transports.flower.processes import free_port, register
from dpfl.transports.flower.tls_keys import node_key
from tests.conftest import PATIENCE, wait_until
from tests.node.loopback import EVENT, ask, join, new_node, round_of, work
from tests.transports.flower.conftest import Federation

pytestmark = pytest.mark.xdist_group("flower")


class Started:
    def __init__(self, federation: Federation, folder: Path) -> None:
        self.federation, self.folder, self.port = federation, folder, free_port()
        server = {
            "address": federation.link.address,
            "ca": str(federation.keys.authority),
            "watch": self.port,
        }
        self.policy = new_node(folder, server=server)
        register(
            federation.link.address,
            federation.keys.authority,
            node_key(folder / "carrier.key"),
            "b",
        )
        self.heads: list[object] = []
        """What it signed."""
        self.start()

    def start(self) -> None:
        before = set(self.federation.transport.nodes())
        with (self.folder / "out").open("wb") as out:
            self.process = subprocess.Popen(
                self.command, env={**os.environ, **parent_variable()}, stdout=out, stderr=out
            )
        self.address = wait_until(lambda: set(self.federation.transport.nodes()) - before).pop()

    def end(self) -> None:
        self.process.terminate()
        assert self.process.wait(PATIENCE) == 0
        wait_until(lambda: self.address not in self.federation.transport.nodes())

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "dpfl.cli", "node", str(self.policy)]

    def __call__(self, message: bytes) -> messages.SignedMessage:
        answer = self.federation.asked(self.address, message).message
        assert answer is not None
        return messages.read(answer, load_private(self.folder / "node.pem").public_key(), 1 << 24)

    def metrics(self) -> dict[str, float]:
        lines = httpx.get(
            f"http://127.0.0.1:{self.port}/metrics", timeout=PATIENCE
        ).text.splitlines()
        return {
            name: float(value)
            for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        }


@pytest.fixture(scope="module")
def node(federation: Federation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    started = Started(federation, tmp_path_factory.mktemp("daemon") / "b")
    yield started
    started.process.kill()
    started.process.wait()


def test_a_node_answers_shows_and_ends(node: Started) -> None:
    assert node(ask("ping")).header["kind"] == "pong"
    assert node(join()).header["kind"] == "joined"
    shutil.copytree(
        node.folder,
        node.folder.parent / "backup",
        ignore=shutil.ignore_patterns("supernode", "*.lock"),
    )
    done = node(work()).header
    assert done["kind"] == "reply"
    node.heads.append(done["ledger_head"])
    assert node(ask("ping", to="somebody else")).header["kind"] == "refused"
    assert httpx.get(f"http://127.0.0.1:{node.port}/health", timeout=PATIENCE).json()["healthy"]
    found = node.metrics()
    assert found["dpfl_letters_total"] == 4
    assert found["dpfl_releases_total"] == 2
    assert found['dpfl_refusals_total{reason="wrong-node"}'] == 1
    assert found['dpfl_bytes_total{direction="out"}'] > 50_000
    guarantee = '{delta="1e-05",unit="sample",accountant="rdp"}'
    assert found[f"dpfl_epsilon_spent{guarantee}"] > 0
    assert found[f"dpfl_epsilon_spent{guarantee}"] + found[
        f"dpfl_epsilon_left{guarantee}"
    ] == pytest.approx(30.0)
    log = node.folder / "supernode" / "supernode.log"
    before = log.read_text().count("Received successfully")
    request_id = node.federation.transport.send(node.address, ask("ping"))
    wait_until(lambda: log.read_text().count("Received successfully") > before)
    node.process.terminate()
    assert node.process.wait(PATIENCE) == 0
    node.federation.answered(request_id)
    wait_until(lambda: node.address not in node.federation.transport.nodes())
    said = [
        json.loads(line)["event"] for line in (node.folder / "node.log").read_text().splitlines()
    ]
    assert (said[0], said[-1]) == ("started", "stopped")
    assert "supernode started" in said


def test_a_node_whose_folder_was_set_back_is_told_and_stays_away_until_it_is_reconciled(
    node: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over real processes: the release of the test before is not in the folder, and is in a head
    that the node signed.
    """
    for path in (node.folder / "ledger", node.folder / "replies"):
        shutil.rmtree(path)
    shutil.copytree(node.folder.parent / "backup", node.folder, dirs_exist_ok=True)
    node.start()
    assert node(join(heads=node.heads)).header["reason"] == "rolled-back"
    assert node(work(round_of(1))).header["reason"] == "rolled-back"
    node.end()
    with monkeypatch.context() as patch:
        patch.setattr(daemon, "serve", lambda *_: pytest.fail("it answers letters"))
        with pytest.raises(DpflError, match="dpfl ledger reconcile"):
            daemon.run(node.policy)
    said = CliRunner().invoke(app, ["ledger", "reconcile", str(node.policy)]).stdout
    assert "2 releases added from 1 signed heads" in said
    with closing(Ledger.read(node.folder / "ledger" / "b.sqlite")) as ledger:
        assert ledger.spending() == {EVENT: 2}


def test_what_is_missing_is_a_sentence(tmp_path: Path) -> None:
    policy = new_node(tmp_path / "b")
    with pytest.raises(DpflError, match=r"There is no key .*carrier.key"):
        daemon.run(policy)
    node_key(policy.parent / "carrier.key")
    with pytest.raises(DpflError, match=r"ca.crt cannot be read"):
        daemon.run(policy)
