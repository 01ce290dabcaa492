"""Pages that watch a run are told when it goes away or cannot be read."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from dpfl.errors import DpflError
from dpfl.web.event_stream import EventStream
from dpfl.web.run_index import RunIndex

pytestmark = pytest.mark.xdist_group("web")


def test_a_watched_run_that_becomes_odd_ends_the_watch(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "plain", tmp_path / "x")
    text = (tmp_path / "x" / "experiment.toml").read_text()
    (tmp_path / "x" / "experiment.toml").write_text(
        text.replace("\nclients = 4\n", '\nclients = "many"\n')
    )
    assert "many" in (tmp_path / "x" / "experiment.toml").read_text()

    async def first() -> str:
        return await anext(EventStream(RunIndex(tmp_path), lambda name: False).watch("x", 0))

    assert '"gone": true' in asyncio.run(first())


def test_a_run_that_goes_away_is_a_sentence(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "plain", tmp_path / "short-lived")
    own = RunIndex(tmp_path)
    assert [line["state"] for line in own.lines()] == ["finished"]
    shutil.rmtree(tmp_path / "short-lived")
    assert own.lines() == []
    with pytest.raises(DpflError, match="There is no run"):
        own.open("short-lived")

    async def first() -> str:
        return await anext(EventStream(own, lambda name: False).watch("short-lived", 0))

    assert '"gone": true' in asyncio.run(first())
    assert RunIndex(tmp_path / "nowhere").lines() == []
