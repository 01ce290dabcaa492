"""A node as its owner starts it, in a real federation: it answers its owner's letters, shows what it did, ends when asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from dpfl.errors import DpflError
from dpfl.flower.daemon import run
from dpfl.flower.keys import node_key
from dpfl.flower.parent import named
from dpfl.flower.processes import free_port, register
from dpfl.keys import load_private
from dpfl.node import letters
from tests.flower.conftest import Federation, soon
from tests.node.loopback import ask, join, new_node, work

pytestmark = pytest.mark.xdist_group("flower")


class Started:
    def __init__(self, federation: Federation, folder: Path) -> None:
        self.federation, self.folder, self.port = federation, folder, free_port()
        server = {"address": federation.link.address, "ca": str(federation.keys.authority), "watch": self.port}
        self.policy = new_node(folder, server=server)
        register(federation.link.address, federation.keys.authority, node_key(folder / "carrier.key"), "b")
        before = set(federation.post.nodes())
        command = [sys.executable, "-m", "dpfl.cli", "node", str(self.policy)]
        with (folder / "out").open("wb") as out:
            self.process = subprocess.Popen(command, env={**os.environ, **named()}, stdout=out, stderr=out)
        self.address = soon(lambda: set(federation.post.nodes()) - before).pop()

    def __call__(self, letter: bytes) -> letters.Letter:
        answer = self.federation.asked(self.address, letter).letter
        assert answer is not None
        return letters.read(answer, load_private(self.folder / "node.pem").public_key(), 1 << 24)

    def metrics(self) -> dict[str, float]:
        lines = httpx.get(f"http://127.0.0.1:{self.port}/metrics").text.splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


@pytest.fixture(scope="module")
def node(federation: Federation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    started = Started(federation, tmp_path_factory.mktemp("daemon") / "b")
    yield started
    started.process.kill()
    started.process.wait()


def test_a_node_answers_shows_and_ends(node: Started) -> None:
    assert node(ask("ping")).head["kind"] == "pong"
    assert node(join()).head["kind"] == "joined"
    assert node(work()).head["kind"] == "reply"
    assert node(ask("ping", to="somebody else")).head["kind"] == "refused"
    assert httpx.get(f"http://127.0.0.1:{node.port}/health").json()["healthy"]
    found = node.metrics()
    assert found["dpfl_letters_total"] == 4
    assert found["dpfl_releases_total"] == 2
    assert found['dpfl_refusals_total{reason="wrong-node"}'] == 1
    assert found['dpfl_bytes_total{direction="out"}'] > 50_000
    guarantee = '{delta="1e-05",unit="sample",accountant="rdp"}'
    assert found[f"dpfl_epsilon_spent{guarantee}"] > 0
    assert found[f"dpfl_epsilon_spent{guarantee}"] + found[f"dpfl_epsilon_left{guarantee}"] == pytest.approx(30.0)
    ticket = node.federation.post.send(node.address, ask("ping"))
    time.sleep(0.3)
    node.process.terminate()
    assert node.process.wait(30) == 0
    node.federation.answered(ticket)
    soon(lambda: node.address not in node.federation.post.nodes())
    said = [json.loads(line)["event"] for line in (node.folder / "node.log").read_text().splitlines()]
    assert (said[0], said[-1]) == ("started", "stopped")
    assert "supernode started" in said


def test_what_is_missing_is_a_sentence(tmp_path: Path) -> None:
    policy = new_node(tmp_path / "b")
    with pytest.raises(DpflError, match=r"There is no key .*carrier.key"):
        run(policy)
    node_key(policy.parent / "carrier.key")
    with pytest.raises(DpflError, match=r"ca.crt cannot be read"):
        run(policy)
