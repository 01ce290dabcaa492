"""The node's log."""

from __future__ import annotations

import pytest

from tests.node.loopback import (
    Asked,
    work,
)  # fmt: skip


def test_a_full_log_becomes_an_older_one(node: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpfl.node.storage.journal.MOST_BYTES", 2000)
    for _ in range(120):
        node.service.answer(b"")
    names = sorted(path.name for path in node.folder.glob("node.log*"))
    assert names == ["node.log", *(f"node.log.{number}" for number in range(1, 5))]
    assert all(path.stat().st_size < 2500 for path in node.folder.glob("node.log*"))


def test_a_node_that_cannot_open_a_new_log_answers_and_goes_on(
    node: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpfl.node.storage.journal.MOST_BYTES", 0)
    (node.folder / "node.log.1").mkdir()
    (node.folder / "node.log.2").mkdir()
    for _ in range(3):
        assert node.refused(b"") == "not-a-letter"
    assert node(work()).header["kind"] == "reply"
