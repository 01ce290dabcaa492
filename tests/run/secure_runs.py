"""A system for secure sums, and clients that are never heard of again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dpfl
from dpfl.algorithms import (
    fedavg_dp,
)
from dpfl.client.runner import ClientRunner
from dpfl.client.task import ClientReply
from dpfl.privacy import Ledger

Train = Callable[..., dpfl.Result]


ONE_STEP = fedavg_dp(tau=1, sampling_rate=0.1, noise_multiplier=1.0, rate=0.5)


def events(folder: Path) -> list[dict[Any, int]]:
    found = []
    for path in sorted((folder / "ledger").glob("*.sqlite")):
        ledger = Ledger.read(path)
        found.append(dict(ledger.spending()))
        ledger.close()
    assert found
    return found


def losing(monkeypatch: pytest.MonkeyPatch, *lost: int) -> None:
    """Clients that are never heard of again."""
    work = ClientRunner.work
    monkeypatch.setattr(
        ClientRunner,
        "work",
        lambda self, task, *more: (
            ClientReply(task.client, failure="it is gone")
            if task.client in lost
            else work(self, task, *more)
        ),
    )
