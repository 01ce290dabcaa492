"""A folder of small runs, the real server over it, and a real browser where there is one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import dpfl
from dpfl.certificate import Certificate, certify, new_key
from dpfl.certificate.printed_page import page as printed
from dpfl.config.experiment import parse
from dpfl.node.service import Service
from dpfl.protocol.keys import public_key_hex
from dpfl.run.records.folder import RunFolder
from tests.conftest import MODEL, PATIENCE, small_federation
from tests.loopback import federation

HOSTILE = "<img src=x onerror=alert(1)>"
FEDERATED = {
    "data": {"name": "mnist-sample", "partition": "iid", "clients": 3},
    "model": {"name": "mlp", "hidden": 4},
    "algorithm": {"name": "fedavg-dp", "tau": 1, "sampling_rate": 0.01},
    "budget": {"epsilon": 4.0, "delta": 1e-5, "rounds": 1},
    "privacy": {"accountant": "rdp"},
}
PROGRAM = "from dpfl.cli import main; main()"
HOW = "there is no Chromium: apt install chromium, or name one by CHROMIUM"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def chromium() -> str | None:
    return os.environ.get("CHROMIUM") or next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None
    )


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of a private run, one of them certified; one without privacy; with a hostile name;
    half of one; over nodes.
    """
    root = tmp_path_factory.mktemp("shelf") / "runs"
    private = dpfl.algorithms.fedavg_dp(noise_multiplier=2.0, sampling_rate=0.5)
    for seed in (0, 1):
        limited = dpfl.Budget(rounds=2, epsilon=20.0)
        dpfl.train(
            MODEL,
            small_federation(),
            private,
            limited,
            execution=dpfl.Execution(out=root / f"private-seed{seed}", seed=seed),
        )
    dpfl.train(
        MODEL,
        small_federation(),
        "fedavg",
        dpfl.Budget(rounds=2),
        execution=dpfl.Execution(out=root / "plain"),
    )
    shutil.copytree(root / "plain", root / HOSTILE)
    folder = RunFolder(root / HOSTILE)
    result = folder.json("result.json")
    result["stopped_by"], result["lost"] = HOSTILE, [f"round 1, client 0: {HOSTILE}"]
    folder.write_json("result.json", result)
    (root / "half").mkdir()
    (root / "half" / "experiment.toml").write_text("[run]\nid = 'unfini")
    _certify(root / "private-seed0", root.parent / "key.pem")
    federated(root / "hospitals" / "run", root.parent / "nodes")
    return root


def federated(out: Path, nodes: Path) -> None:
    """A run over two nodes, and a third whose owner refuses; certified."""
    experiment = parse(FEDERATED)
    post, terms = federation(nodes, experiment)
    policy = nodes / "node-2" / "policy.toml"
    post.services.pop("node-2").close()
    policy.write_text(policy.read_text().replace("epsilon = 8.0", "epsilon = 0.01"))
    post.services["node-2"] = Service.open(policy)
    listed = {name: public_key_hex(key) for name, key in terms.nodes.items()}
    parse(FEDERATED | {"server": {"nodes": listed}}).serve(post, terms, out)
    for service in post.services.values():
        service.close()
    _certify(out, nodes / "key.pem")


def _certify(run: Path, key: Path) -> None:
    new_key(key)
    made = certify(run, key)
    (run / "certificate.json").write_text(json.dumps(made))
    (run / "certificate.html").write_text(
        printed(Certificate.model_validate(made["certificate"]), made["signature"])
    )


@dataclass(frozen=True)
class Site:
    address: str
    runs: Path
    process: subprocess.Popen[str]


@pytest.fixture(scope="session")
def site(runs: Path) -> Iterator[Site]:
    with served(runs) as found:
        yield found


class served:
    """`dpfl ui` as a process of its own, on a port that is free."""

    def __init__(self, runs: Path, *words: str) -> None:
        self._runs, self._words = runs, words

    def __enter__(self) -> Site:
        command = [
            sys.executable,
            "-c",
            PROGRAM,
            "ui",
            "--runs",
            str(self._runs),
            "--port",
            "0",
            *self._words,
        ]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        lines = iter(self._process.stderr.readline, "")
        said = next(line for line in lines if "http://" in line)
        return Site("http://" + said.partition("http://")[2].split()[0], self._runs, self._process)

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGINT)
        assert self._process.wait(PATIENCE) in (0, 130), "Ctrl-C ends it, and nothing is broken off"
        if self._process.stderr:
            self._process.stderr.close()
