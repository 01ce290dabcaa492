"""What a server remembers of the heads that nodes signed."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpfl.engines.head_memory import HeadMemory
from dpfl.protocol.keys import public_key_hex
from dpfl.protocol.messages import SignedMessage
from tests.node.history.test_ledger_history import public, remembered
from tests.node.history.test_rollback import reconciled, set_back, worked
from tests.node.loopback import PROPOSAL, Open, join


def test_a_server_forgets_a_head_once_its_node_includes_it(opened: Open, tmp_path: Path) -> None:
    node, head = set_back(opened, tmp_path)
    node = opened()
    worked(node)
    memory = remembered(node, head)
    assert node.refused(join(heads=memory.shown_to("b"))) == "rolled-back"
    node.service.close()
    reconciled(node.folder)
    node = opened()
    shown = memory.shown_to("b")
    answer = node(join(run="another", heads=shown))
    memory.take("b", answer)
    assert memory.is_doubtful("b"), "no anchor of a reconciled ledger shows what was lost"
    memory.accept("b", shown, answer)
    assert [one.to_words() for one in memory.of("b")] == [answer.header["ledger_head"]]


def test_what_was_accepted_does_not_come_back_from_the_file(opened: Open, tmp_path: Path) -> None:
    node, head = set_back(opened, tmp_path)
    node = opened()
    memory = HeadMemory({"b": public(node)}, tmp_path / "heads.json")
    memory.take("b", SignedMessage({"ledger_head": head}, {}))
    memory.save()
    answer = node(join())
    memory.take("b", answer)
    memory.accept("b", [head], answer)
    memory.save()
    assert json.loads((tmp_path / "heads.json").read_text()) == {
        "b": [answer.header["ledger_head"]]
    }


def test_a_copy_that_starts_often_does_not_push_out_what_the_original_signed(
    opened: Open, tmp_path: Path
) -> None:
    """Fault: eight later starts were enough."""
    node = opened()
    worked(node, 0)
    node.service.close()
    shutil.copytree(node.folder, tmp_path / "clone")
    node = opened()
    memory = remembered(node, worked(node, 1))
    (original,) = memory.of("b")
    for _ in range(10):
        clone = opened("clone")
        memory.take("b", clone(join()))
        clone.service.close()
    assert original in memory.of("b")
    assert len(memory.of("b")) == 2


def test_a_node_of_the_same_name_with_another_key_is_remembered_beside_it(
    opened: Open, tmp_path: Path
) -> None:
    """Fault: a second experiment with another node of that name erased what the first one's had
    signed.
    """
    node, other = opened(), opened("a", name="a")
    head = worked(node, 0)
    file = tmp_path / "heads.json"
    memory = HeadMemory({"b": public(node)}, file)
    memory.take("b", SignedMessage({"ledger_head": head}, {}))
    memory.save()
    answer = other(join(replace(PROPOSAL, client=0), to="a"))
    stranger = public_key_hex(Ed25519PrivateKey.generate().public_key())
    for _ in range(2):
        second = HeadMemory({"a": public(other), "b": stranger}, file)
        second.take("a", answer)
        second._has_changes = True
        second.save()
    assert second.of("b") == []
    assert [one.to_words() for one in HeadMemory({"b": public(node)}, file).of("b")] == [head]
    assert len(json.loads(file.read_text())["b"]) == 1
