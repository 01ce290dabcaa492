"""The log of a server and its `/metrics`: rounds, lost replies, epsilon with its delta and unit."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dpfl.cli.federation_progress import LOG, FederationProgress
from dpfl.run.metrics import RoundRow
from dpfl.run.recorder import SilentProgress


def job() -> Any:
    coordinator = SimpleNamespace(
        lost_replies=["round 0, a: before"], state=SimpleNamespace(round=0), stopped_by="rounds"
    )
    return SimpleNamespace(
        run="r",
        algorithm=SimpleNamespace(name="fedavg-dp", unit="sample"),
        coordinator=coordinator,
        budget=SimpleNamespace(delta=1e-5),
    )


def test_a_run_is_logged_round_by_round(tmp_path: Path) -> None:
    work, progress = job(), FederationProgress(SilentProgress(), tmp_path)
    assert [sample.name for sample in progress.figures()] == ["dpfl_rounds_total"]
    progress.start(work)
    work.coordinator.lost_replies.append("round 1, b: late")
    progress.tell(RoundRow(1, 2, 2, 3, None, None, 1.5, None, 800, 7.25))
    figures = {sample.name: sample for sample in progress.figures()}
    progress.stop()
    events = [json.loads(line) for line in (tmp_path / LOG).read_text().splitlines()]
    assert [event["event"] for event in events] == ["started", "lost", "round", "ended"]
    assert events[1]["reply"] == "round 1, b: late"
    assert (events[2]["epsilon"], events[2]["delta"], events[2]["bytes"]) == (1.5, 1e-5, 800)
    assert figures["dpfl_epsilon_ordered"].values == {'delta="1e-05",unit="sample"': 1.5}
    assert len(figures) == 6
