"""What is changed of Flower's processes."""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import os
import subprocess
import sys
from typing import Any

import pytest

import dpfl.transports.flower
from dpfl.errors import DpflError
from dpfl.node.policy import SEED
from dpfl.transports.flower.child import LoopbackFilter
from dpfl.transports.flower.parent import named
from dpfl.transports.flower.processes import passed
from tests.conftest import PATIENCE, wait_until


@pytest.mark.parametrize(
    ("path", "client", "status"),
    [
        ("/v1/fleet/pull-messages", "10.0.0.7", 200),
        ("/v1/control/start-run", "10.0.0.7", 404),
        ("/v1/control/start-run", "testclient", 404),
        ("/v1/runtime/acquire-task", "10.0.0.7", 404),
        ("/v1/fleet/../control/start-run", "10.0.0.7", 404),
        ("/v1/control/start-run", "127.0.0.1", 200),
        ("/v1/runtime/acquire-task", "::1", 200),
    ],
)
def test_other_machines_reach_the_fleet_alone(path: str, client: str, status: int) -> None:
    said: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})

    async def send(message: dict[str, Any]) -> None:
        said.append(message)

    asyncio.run(
        LoopbackFilter(app)({"type": "http", "path": path, "client": (client, 1)}, None, send)
    )
    assert said[0]["status"] == status


def test_a_child_ends_with_its_parent() -> None:
    watching = (
        "import time; from dpfl.transports.flower.parent import end_with_parent; "
        "end_with_parent(); print('on', flush=True); time.sleep(3600)"
    )
    parent = (
        "import os, subprocess, sys; from dpfl.transports.flower.parent import named\n"
        f"child = subprocess.Popen([sys.executable, '-c', {watching!r}],\n"
        "                         env={**os.environ, **named()}, stdout=subprocess.PIPE)\n"
        "child.stdout.readline(); print(child.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run(
        [sys.executable, "-c", parent],
        env={**os.environ, **named()},
        capture_output=True,
        timeout=PATIENCE,
    )
    child = int(done.stdout)
    wait_until(lambda: not _runs(child))


def _runs(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_flower_s_processes_know_nothing_of_what_else_is_in_our_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    secrets = {"DATABASE_PASSWORD", "AWS_SECRET_ACCESS_KEY", SEED, "HOMEPAGE", "XPATH"}
    for name in secrets:
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HTTPS_PROXY", "proxy:1")
    found = passed(os.environ)
    assert found["HTTPS_PROXY"] == "proxy:1"
    assert found["PATH"] == os.environ["PATH"]
    assert not secrets & found.keys()


@pytest.mark.parametrize(
    ("installed", "sentence"), [(None, "pip install 'dpfl"), ("1.40.0", "pip install flwr==1.41.0")]
)
def test_without_flower_one_sentence_says_what_to_install(
    installed: str | None, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if installed is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return installed

    with monkeypatch.context() as patched:
        patched.setattr(importlib.metadata, "version", version)
        with pytest.raises(DpflError, match=sentence.replace("[", "\\[")):
            importlib.reload(dpfl.transports.flower)
    importlib.reload(dpfl.transports.flower)
