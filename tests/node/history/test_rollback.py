"""A node whose disk was set back: what it once signed is more than its ledger counts, so it waits
until that is added.
"""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from dpfl.cli.app import app
from dpfl.errors import DpflError
from dpfl.privacy import Ledger, Limit
from dpfl.privacy.accounting.events import encode
from dpfl.protocol.keys import load_private, public_key_hex, sign
from dpfl.protocol.ledger_head import sign_head
from tests.node.loopback import (
    EVENT,
    PROPOSAL,
    RUN,
    STEPS,
    Asked,
    Open,
    join,
    new_node,
    round_of,
    work,
)


def worked(node: Asked, *rounds: int) -> dict[str, Any]:
    """Rounds of the run, one after another; the head that the last reply was signed with."""
    assert node(join()).header["kind"] == "joined"
    head: dict[str, Any] = {}
    for number in rounds:
        answer = node(work(round_of(number))).header
        assert answer["kind"] == "reply"
        head = answer["ledger_head"]
    return head


PAIR = ("ledger", "orders.sqlite")
"""What owners were told to back up together."""


def copied(source: Path, target: Path, *names: str) -> None:
    for name in names:
        there = target / name
        if there.is_dir():
            shutil.rmtree(there)
        (shutil.copytree if (source / name).is_dir() else shutil.copy2)(source / name, there)


def test_a_ledger_and_orders_from_a_backup_are_refused_by_a_reply_that_was_kept(
    opened: Open, tmp_path: Path
) -> None:
    node = opened()
    worked(node, 0)
    node.service.close()
    (tmp_path / "backup").mkdir()
    copied(node.folder, tmp_path / "backup", *PAIR)
    node = opened()
    worked(node, 1, 2)
    node.service.close()
    assert node.spending() == {EVENT: 3 * STEPS}
    copied(tmp_path / "backup", node.folder, *PAIR)
    with pytest.raises(DpflError, match="dpfl ledger reconcile"):
        opened()
    assert node.spending() == {EVENT: STEPS}


def test_a_whole_folder_from_a_backup_is_refused_by_what_the_server_remembers(
    opened: Open, tmp_path: Path
) -> None:
    node = opened()
    worked(node, 0)
    node.service.close()
    shutil.copytree(node.folder, tmp_path / "backup")
    node = opened()
    head = worked(node, 1, 2)
    node.service.close()
    shutil.rmtree(node.folder)
    shutil.copytree(tmp_path / "backup", node.folder)
    node = opened()
    before = node.rows()
    assert node.refused(work(round_of(1))) == "join-again", "before the run said what it remembers"
    assert node.refused(join(heads=[head])) == "rolled-back"
    for message in (work(round_of(1)), join(), join(run="another")):
        assert node.refused(message) == "rolled-back", "whatever else is said"
    assert node.rows() == before
    node.service.close()
    with pytest.raises(DpflError, match="dpfl ledger reconcile"):
        opened()


def test_a_folder_without_ledger_and_orders_does_not_begin_at_zero(opened: Open) -> None:
    node = opened()
    worked(node, 0, 1)
    node.service.close()
    shutil.rmtree(node.folder / "ledger")
    (node.folder / "orders.sqlite").unlink()
    with pytest.raises(DpflError, match=r"is missing, but .*node.log"):
        opened()
    assert not (node.folder / "ledger").exists()
    shutil.rmtree(node.folder / "replies")
    with pytest.raises(DpflError, match=r"is missing, but .*node.log"):
        opened()


def test_a_clone_and_its_original_do_not_each_count_their_own(opened: Open, tmp_path: Path) -> None:
    node = opened()
    first = worked(node, 0)
    node.service.close()
    shutil.copytree(node.folder, tmp_path / "clone")
    node, clone = opened(), opened("clone")
    second = worked(node, 1)
    before = clone.rows()
    assert clone(join(heads=[first])).header["kind"] == "joined", "what both had before"
    assert clone.refused(join(heads=[first, second])) == "rolled-back"
    assert clone.refused(work(round_of(1))) == "rolled-back"
    assert clone.rows() == before
    assert node(join(heads=[first, second])).header["kind"] == "joined"


def test_two_starts_of_one_copy_are_told_apart_before_either_spends(
    opened: Open, tmp_path: Path
) -> None:
    node = opened()
    worked(node)
    node.service.close()
    shutil.copytree(node.folder, tmp_path / "clone")
    node, clone = opened(), opened("clone")
    heads = [one(join()).header["ledger_head"] for one in (node, clone)]
    assert heads[0]["head"]["starts"][0][0] == heads[1]["head"]["starts"][0][0] == 2, (
        "the same number of starts"
    )
    assert node.refused(join(heads=[heads[1]])) == "rolled-back"
    assert clone.refused(join(heads=[heads[0]])) == "rolled-back"
    assert json.loads(node.log().splitlines()[-1])["reason"] == "rolled-back"


# What its owner does then


def reconciled(folder: Path, *files: Path) -> str:
    result = CliRunner().invoke(
        app, ["ledger", "reconcile", str(folder / "policy.toml"), *map(str, files)]
    )
    assert result.exit_code == 0, result.output
    return result.output


def set_back(opened: Open, tmp_path: Path) -> tuple[Asked, dict[str, Any]]:
    """A folder from after the first of three rounds, and the head of the last."""
    node = opened()
    worked(node, 0)
    node.service.close()
    shutil.copytree(node.folder, tmp_path / "backup")
    node = opened()
    head = worked(node, 1, 2)
    node.service.close()
    shutil.rmtree(node.folder)
    shutil.copytree(tmp_path / "backup", node.folder)
    return node, head


# What a server can and cannot do with heads


def forged(head: dict[str, Any], key: Any = None, **changes: Any) -> dict[str, Any]:
    words = head["head"] | changes
    return {"head": words, "signature": sign(words, key) if key else head["signature"]}


def test_a_forged_head_is_a_bad_message_and_changes_nothing(opened: Open) -> None:
    node = opened()
    head = worked(node, 0)
    rows = head["head"]["rows"]
    stranger = Ed25519PrivateKey.generate()
    ahead = {"rows": rows + 9, "seal": "0" * 64, "starts": [[9, "0" * 16, rows + 9]]}
    before, files = node.rows(), sorted(path.name for path in node.folder.iterdir())
    for odd in (
        forged(head, **ahead),
        forged(head, stranger, **ahead),
        forged(head, stranger, public_key=public_key_hex(stranger.public_key()), **ahead),
        {**head, "signature": "00" * 64},
        {**head, "signature": 1},
        {"head": head["head"]},
        [],
        None,
        {**head, "more": 1},
        forged(head, rows=-1),
        forged(head, spent=[["{}", "", 1]]),
        forged(head, starts=[[1, "x", 2]]),
        forged(head, format=3),
        forged(head, format=1),
        forged(head, anchors=[]),
        forged(head, anchors=[[rows, "0" * 32]]),
        forged(head, format=True),
    ):
        assert node.refused(join(heads=[odd])) == "bad-words"
    for odd in ({}, "heads", [head] * 33, 3):
        assert node.refused(join(heads=odd)) == "bad-words"
    assert node.rows() == before
    assert sorted(path.name for path in node.folder.iterdir()) == files
    assert node(join()).header["kind"] == "joined"
    assert node(work(round_of(1))).header["kind"] == "reply", "nothing that was made up stops it"


def test_an_older_head_is_no_reason_to_refuse(opened: Open) -> None:
    node = opened()
    first = worked(node, 0)
    worked(node, 1)
    assert node(join(heads=[first])).header["kind"] == "joined"
    node.service.close()
    node = opened()
    assert node(join(heads=[first])).header["kind"] == "joined"
    assert node(work(round_of(2))).header["kind"] == "reply"


def test_only_an_owner_of_the_policy_shows_heads(opened: Open, tmp_path: Path) -> None:
    _, head = set_back(opened, tmp_path)
    node = opened()
    assert node.refused(join(heads=[head], key=Ed25519PrivateKey.generate())) == "bad-signature"
    assert node(join()).header["kind"] == "joined", "what nobody shows, a node alone cannot know"


def test_heads_of_other_nodes_are_kept_and_passed_on(opened: Open, tmp_path: Path) -> None:
    """By name, for runs with these nodes: what one server forgets, another learns from a node."""
    other = opened("a", name="a")
    head = other(join(replace(PROPOSAL, client=0), to="a")).header["ledger_head"]
    node = opened()
    assert node(join(heads=[head])).header["heads"] == [], "whoever brought it has it"
    node.service.close()
    node = opened()
    assert node(join()).header["heads"] == [head]
    assert node(join(replace(PROPOSAL, federation=("c", "b")), run="another")).header["heads"] == []
    assert (
        other.refused(join(replace(PROPOSAL, client=0), to="a", heads=[forged(head, rows=99)]))
        == "bad-words"
    )


# A witness on other storage


# Old formats, and large ledgers


def test_a_ledger_from_before_there_were_starts_opens_counts_and_is_signed(opened: Open) -> None:
    """Its rows are those that it always had."""
    folder = new_node(opened().folder.parent / "old").parent
    with closing(
        Ledger.open(
            folder / "ledger" / "b.sqlite",
            "b",
            "sample",
            "add/remove one",
            Limit(30.0, 1e-5, "rdp"),
        )
    ) as ledger:
        ledger.debit(RUN, f"{RUN}/one", EVENT, 3)
        assert ledger.starts == []
        old = sign_head(ledger, load_private(folder / "node.pem"))
        assert (old.head.boot, old.head.start) == (0, "")
    node = opened("old")
    head = node(join(run="another", heads=[old.to_words()])).header["ledger_head"]["head"]
    assert head["spent"] == [[encode(EVENT), "", 3]]
    assert head["starts"][0][0] == 1
