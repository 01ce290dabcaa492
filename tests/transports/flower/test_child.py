"""What is changed of Flower's processes."""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
from typing import Any

import pytest

import dpfl.transports.flower
from dpfl.errors import DpflError
from dpfl.transports.flower.child import LoopbackFilter


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
