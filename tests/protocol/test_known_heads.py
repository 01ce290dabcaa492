"""What a node remembers of heads that it was shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from dpfl.cli.app import app
from dpfl.protocol.keys import public_key_hex, sign
from tests.node.history.test_rollback import set_back, worked
from tests.node.loopback import PROPOSAL, Open, join, round_of, work


def test_what_can_lock_a_node_is_only_what_its_own_key_signed(opened: Open) -> None:
    """A server that wants it to stop: heads of others, of another ledger under another key, and its
    own that it includes.
    """
    node, other = opened(), opened("a", name="a")
    head = worked(node, 0)
    strange = other(join(replace(PROPOSAL, client=0), to="a")).header["ledger_head"]
    key = Ed25519PrivateKey.generate()
    words = head["head"] | {
        "rows": 999,
        "seal": "0" * 64,
        "starts": [[9, "0" * 16, 999]],
        "public_key": public_key_hex(key.public_key()),
    }
    assert node(join(heads=[strange])).header["kind"] == "joined", "of another node: kept for it"
    assert node.refused(join(heads=[{"head": words, "signature": sign(words, key)}])) == "bad-words"
    other_name = strange["head"] | {"node": "b"}
    assert (
        node.refused(join(heads=[{"head": other_name, "signature": strange["signature"]}]))
        == "bad-words"
    )
    assert node(work(round_of(1))).header["kind"] == "reply"
    node.service.close()
    assert opened()(join(heads=[head])).header["kind"] == "joined"


def test_an_owner_sees_why_a_locked_node_does_not_work(opened: Open, tmp_path: Path) -> None:
    _, head = set_back(opened, tmp_path)
    node = opened()
    assert node.refused(join(heads=[head])) == "rolled-back"
    assert json.loads(node.log().splitlines()[-1])["reason"] == "rolled-back"
    node.service.close()
    told = " ".join(CliRunner().invoke(app, ["node", "check", str(node.folder)]).output.split())
    assert "dpfl ledger reconcile" in told
