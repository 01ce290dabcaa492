"""The log of a node as evidence of releases that its ledger lacks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpfl.errors import DpflError
from tests.node.history.test_rollback import copied, reconciled, set_back, worked
from tests.node.loopback import EVENT, STEPS, Open, join, work


def test_a_log_that_tells_of_more_than_the_ledger_is_enough_to_refuse(
    opened: Open, tmp_path: Path
) -> None:
    """Fault: ledger, orders and replies from one backup beside a log that went on were taken as
    they were.
    """
    node = opened()
    worked(node, 0)
    node.service.close()
    (tmp_path / "backup").mkdir()
    copied(node.folder, tmp_path / "backup", "ledger", "orders.sqlite", "replies")
    node = opened()
    worked(node, 1, 2)
    node.service.close()
    copied(tmp_path / "backup", node.folder, "ledger", "orders.sqlite", "replies")
    with pytest.raises(DpflError, match="dpfl ledger reconcile"):
        opened()
    assert "4 releases added" in reconciled(node.folder)
    assert node.spending() == {EVENT: 3 * STEPS}
    assert "nothing is missing" in reconciled(node.folder)
    assert opened()(join(run="another")).header["kind"] == "joined"


def test_of_a_log_that_lost_its_beginning_the_rest_is_counted(opened: Open, tmp_path: Path) -> None:
    """Fault: what such a log told of was compared with all that the ledger held, and was less."""
    node = opened()
    worked(node, 0, 1)
    node.service.close()
    (tmp_path / "backup").mkdir()
    copied(node.folder, tmp_path / "backup", "ledger", "orders.sqlite", "replies")
    (node.folder / "node.log").unlink()
    node = opened()
    worked(node, 2)
    node.service.close()
    copied(tmp_path / "backup", node.folder, "ledger", "orders.sqlite", "replies")
    reconciled(node.folder)
    assert node.spending() == {EVENT: 3 * STEPS}


def test_a_log_of_a_reconciled_node_is_compared_by_its_last_line(
    opened: Open, tmp_path: Path
) -> None:
    node, head = set_back(opened, tmp_path)
    (tmp_path / "signed.json").write_text(json.dumps(head))
    reconciled(node.folder, tmp_path / "signed.json")
    node = opened()
    assert node(join(run="another")).header["kind"] == "joined"
    assert node(work(run="another")).header["kind"] == "reply"
    node.service.close()
    opened().service.close()
    assert node.spending() == {EVENT: 4 * STEPS}
