"""The parts of a running node fit together."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from dpfl.errors import DpflError
from dpfl.privacy.ledger.chain import ChainTail
from dpfl.protocol.keys import public_key_hex
from tests.node.loopback import Asked, new_node


def test_the_parts_of_a_node_have_its_policy_its_key_and_its_ledger(tmp_path: Path) -> None:
    node = Asked.open(new_node(tmp_path / "b"))
    state = node.service._state
    assert state.checker.policy is state.history.policy is node.service.policy
    assert (
        state.checker.public_key
        == state.history.public_key
        == public_key_hex(state.key.public_key())
    )
    with closing(state.open_ledger()) as ledger:
        assert ledger.account.owner == "b"
        assert ledger.contains(state.log.ledger_tail)
    state.log.see(ChainTail(99, "a" * 64))
    with pytest.raises(DpflError, match=r"older than .*last release"):
        state.open_ledger()
    node.service.close()
