"""The folder of a node and the ledger in it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from dpfl.errors import DpflError
from dpfl.node.load_data import load_node_data
from dpfl.node.policy import read
from dpfl.node.storage.folder import open_ledger as open_node_ledger
from dpfl.privacy.ledger.chain import ChainTail
from dpfl.privacy.ledger.client_ledgers import ledger_path
from tests.node.loopback import (
    new_node,
)


def test_a_ledger_that_is_gone_is_not_made_anew(tmp_path: Path) -> None:
    policy = read(new_node(tmp_path / "b"))
    data = load_node_data(policy)
    with closing(open_node_ledger(policy, data, ChainTail())) as ledger:
        seen = ledger.tail
    path = ledger_path(policy.ledgers, "b")
    open_node_ledger(policy, data, seen).close()
    path.unlink()
    with pytest.raises(DpflError, match="is missing"):
        open_node_ledger(policy, data, seen)
    assert not path.exists()
