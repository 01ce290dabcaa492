"""A node whose disk was set back: what it once signed is more than its ledger counts, so it waits
until that is added.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from dpfl.cli.app import app
from dpfl.errors import DpflError
from dpfl.node.rollback import _add_all
from dpfl.node.service import Service
from dpfl.node.statement import check, statement
from dpfl.privacy import Ledger, Limit, accountant
from dpfl.privacy.accounting.events import encode, gaussian
from dpfl.privacy.ledger.plans import proven_events
from dpfl.privacy.statement import figure
from dpfl.protocol.keys import load_private, raw, sign
from dpfl.protocol.ledger_head import head_from_words, sign_head
from tests.node.loopback import (
    EVENT,
    PROPOSAL,
    ROUNDS,
    RUN,
    STEPS,
    Asked,
    ask,
    join,
    new_node,
    round_of,
    work,
    write_policy,
)

Open = Callable[..., Asked]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Nodes that are closed at the end; the same folder again where it is there."""
    live: list[Service] = []

    def start(place: str = "b", **changes: Any) -> Asked:
        folder = tmp_path / place
        policy = write_policy(folder, **changes) if folder.exists() else new_node(folder, **changes)
        node = Asked.open(policy)
        live.append(node.service)
        return node

    yield start
    for service in live:
        service.close()


def worked(node: Asked, *rounds: int) -> dict[str, Any]:
    """Rounds of the run, one after another; the head that the last reply was signed with."""
    assert node(join()).head["kind"] == "joined"
    head: dict[str, Any] = {}
    for number in rounds:
        answer = node(work(round_of(number))).head
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
    for letter in (work(round_of(1)), join(), join(run="another")):
        assert node.refused(letter) == "rolled-back", "whatever else is said"
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
    with pytest.raises(DpflError, match=r"is gone, and what it held was spent.*node.log"):
        opened()
    assert not (node.folder / "ledger").exists()
    shutil.rmtree(node.folder / "replies")
    with pytest.raises(DpflError, match=r"is gone, and what it held was spent.*node.log"):
        opened()


def test_a_clone_and_its_original_do_not_each_count_their_own(opened: Open, tmp_path: Path) -> None:
    node = opened()
    first = worked(node, 0)
    node.service.close()
    shutil.copytree(node.folder, tmp_path / "clone")
    node, clone = opened(), opened("clone")
    second = worked(node, 1)
    before = clone.rows()
    assert clone(join(heads=[first])).head["kind"] == "joined", "what both had before"
    assert clone.refused(join(heads=[first, second])) == "rolled-back"
    assert clone.refused(work(round_of(1))) == "rolled-back"
    assert clone.rows() == before
    assert node(join(heads=[first, second])).head["kind"] == "joined"


def test_two_starts_of_one_copy_are_told_apart_before_either_spends(
    opened: Open, tmp_path: Path
) -> None:
    node = opened()
    worked(node)
    node.service.close()
    shutil.copytree(node.folder, tmp_path / "clone")
    node, clone = opened(), opened("clone")
    heads = [one(join()).head["ledger_head"] for one in (node, clone)]
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


def test_what_was_signed_is_counted_and_the_node_works_again(opened: Open, tmp_path: Path) -> None:
    _, head = set_back(opened, tmp_path)
    node = opened()
    assert node.refused(join(heads=[head])) == "rolled-back"
    node.service.close()
    assert node.spending() == {EVENT: STEPS}
    assert "4 releases added" in reconciled(node.folder)
    assert node.spending() == {EVENT: 3 * STEPS}, "what was signed, and nothing twice"
    assert "nothing is missing" in reconciled(node.folder)
    node = opened()
    assert node.refused(join(heads=[head])) == "wrong-run", "a run that was under way is over"
    assert node(join(run="another", heads=[head])).head["kind"] == "joined"
    assert node(work(run="another")).head["kind"] == "reply"
    assert node.spending() == {EVENT: 4 * STEPS}
    signed = node(ask("ask-statement", run="another")).head["statement"]
    assert sum(check(signed, signed["statement"]["public_key"])["releases"].values()) == 4 * STEPS


def test_a_head_of_a_server_s_file_is_counted_without_the_server(
    opened: Open, tmp_path: Path
) -> None:
    node, head = set_back(opened, tmp_path)
    file = tmp_path / "heads.json"
    file.write_text(json.dumps({"a": [], "b": [head]}))
    assert "4 releases added" in reconciled(node.folder, file)
    assert node.spending() == {EVENT: 3 * STEPS}


def test_an_earlier_head_of_what_was_reconciled_is_included(opened: Open, tmp_path: Path) -> None:
    node = opened()
    first = worked(node, 0)
    node.service.close()
    shutil.copytree(node.folder, tmp_path / "backup")
    node = opened()
    second = worked(node, 1)
    third = worked(node, 2)
    node.service.close()
    node = opened()
    fourth = worked(node, 3)
    node.service.close()
    shutil.rmtree(node.folder)
    shutil.copytree(tmp_path / "backup", node.folder)
    (tmp_path / "signed.json").write_text(json.dumps([fourth]))
    reconciled(node.folder, tmp_path / "signed.json")
    assert node.spending() == {EVENT: 4 * STEPS}
    node = opened()
    assert node(join(run="another", heads=[first, second, third, fourth])).head["kind"] == "joined"


def test_a_lost_ledger_is_made_again_from_replies_or_from_the_log(
    opened: Open, tmp_path: Path
) -> None:
    for name, lost in (
        ("replies", ("ledger", "orders.sqlite")),
        ("log", ("ledger", "orders.sqlite", "replies")),
    ):
        node = opened(name)
        worked(node, 0, 1)
        node.service.close()
        for part in lost:
            (shutil.rmtree if (node.folder / part).is_dir() else Path.unlink)(node.folder / part)
        assert "4 releases added" in reconciled(node.folder)
        assert node.spending() == {EVENT: 2 * STEPS}
        node = opened(name)
        assert node(join()).head["kind"] == "joined"
        assert node(work()).head["kind"] == "reply", "of a run that the ledger does not know"
        assert node.spending() == {EVENT: 3 * STEPS}


def test_a_lost_ledger_is_not_made_again_from_a_log_without_its_beginning(opened: Open) -> None:
    node = opened()
    worked(node, 0)
    node.service.close()
    for part in ("ledger", "replies"):
        shutil.rmtree(node.folder / part)
    (node.folder / "node.log.4").write_text("")
    result = CliRunner().invoke(app, ["ledger", "reconcile", str(node.folder)])
    assert isinstance(result.exception, DpflError)
    assert "does not go back to the beginning" in str(result.exception)
    assert not (node.folder / "ledger" / "b.sqlite").exists()


def test_a_clone_that_went_on_is_counted_beside_what_the_original_did(
    opened: Open, tmp_path: Path
) -> None:
    node = opened()
    worked(node, 0)
    node.service.close()
    shutil.copytree(node.folder, tmp_path / "clone")
    node, clone = opened(), opened("clone")
    worked(node, 1)
    other = worked(clone, 1, 2)
    assert node.refused(join(heads=[other])) == "rolled-back"
    node.service.close()
    clone.service.close()
    reconciled(node.folder)
    assert node.spending() == {EVENT: 4 * STEPS}, (
        "one round of both, one of the original, two of the clone"
    )


def test_a_node_that_runs_is_not_reconciled(opened: Open) -> None:
    node = opened()
    result = CliRunner().invoke(app, ["ledger", "reconcile", str(node.folder)])
    assert isinstance(result.exception, DpflError)
    assert "Another process" in str(result.exception)


def test_what_was_planned_is_counted_with_what_was_made(opened: Open, tmp_path: Path) -> None:
    """A run that stops early by what came out costs what it fixed beforehand, also where its debits
    were lost.
    """
    node = opened()
    worked(node)
    node.service.close()
    shutil.copytree(node.folder, tmp_path / "backup")
    node = opened()
    head = worked(node, 0)
    node.service.close()
    shutil.rmtree(node.folder)
    shutil.copytree(tmp_path / "backup", node.folder)
    (tmp_path / "signed.json").write_text(json.dumps(head))
    reconciled(node.folder, tmp_path / "signed.json")
    with closing(Ledger.read(node.folder / "ledger" / "b.sqlite")) as ledger:
        assert ledger.spending() == {EVENT: STEPS}
        assert proven_events(ledger) == {EVENT: ROUNDS * STEPS}


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
        forged(head, stranger, public_key=raw(stranger.public_key()), **ahead),
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
    assert node(join()).head["kind"] == "joined"
    assert node(work(round_of(1))).head["kind"] == "reply", "nothing that was made up stops it"


def test_an_older_head_is_no_reason_to_refuse(opened: Open) -> None:
    node = opened()
    first = worked(node, 0)
    worked(node, 1)
    assert node(join(heads=[first])).head["kind"] == "joined"
    node.service.close()
    node = opened()
    assert node(join(heads=[first])).head["kind"] == "joined"
    assert node(work(round_of(2))).head["kind"] == "reply"


def test_only_an_owner_of_the_policy_shows_heads(opened: Open, tmp_path: Path) -> None:
    _, head = set_back(opened, tmp_path)
    node = opened()
    assert node.refused(join(heads=[head], key=Ed25519PrivateKey.generate())) == "bad-signature"
    assert node(join()).head["kind"] == "joined", "what nobody shows, a node alone cannot know"


def test_heads_of_other_nodes_are_kept_and_passed_on(opened: Open, tmp_path: Path) -> None:
    """By name, for runs with these nodes: what one server forgets, another learns from a node."""
    other = opened("a", name="a")
    head = other(join(replace(PROPOSAL, client=0), to="a")).head["ledger_head"]
    node = opened()
    assert node(join(heads=[head])).head["heads"] == [], "whoever brought it has it"
    node.service.close()
    node = opened()
    assert node(join()).head["heads"] == [head]
    assert node(join(replace(PROPOSAL, federation=("c", "b")), run="another")).head["heads"] == []
    assert (
        other.refused(join(replace(PROPOSAL, client=0), to="a", heads=[forged(head, rows=99)]))
        == "bad-words"
    )


# A witness on other storage


def test_a_witness_shows_what_was_lost_without_any_server(opened: Open, tmp_path: Path) -> None:
    witness = tmp_path / "other" / "b.witness"
    witness.parent.mkdir()
    node = opened(witness=str(witness))
    worked(node, 0)
    node.service.close()
    shutil.copytree(node.folder, tmp_path / "backup")
    node = opened(witness=str(witness))
    worked(node, 1, 2)
    node.service.close()
    assert len(witness.read_text().splitlines()) == 2 + 3, (
        "a line for every start and for every release"
    )
    shutil.rmtree(node.folder)
    shutil.copytree(tmp_path / "backup", node.folder)
    with pytest.raises(DpflError, match="dpfl ledger reconcile"):
        opened(witness=str(witness))
    reconciled(node.folder)
    assert node.spending() == {EVENT: 3 * STEPS}
    assert opened(witness=str(witness))(join(run="another")).head["kind"] == "joined"


def test_a_witness_that_is_gone_or_that_another_wrote_to_ends_the_work(
    opened: Open, tmp_path: Path
) -> None:
    witness = tmp_path / "b.witness"
    node = opened(witness=str(witness))
    worked(node, 0)
    node.service.close()
    shutil.copytree(node.folder, tmp_path / "clone")
    node = opened(witness=str(witness))
    worked(node)
    with pytest.raises(DpflError, match="lacks releases"):
        opened("clone", witness=str(witness))
    with witness.open("ab") as file:
        file.write(witness.read_bytes().splitlines(keepends=True)[0])
    before = node.rows()
    assert node.refused(work(round_of(1))) == "rolled-back"
    witness.unlink()
    assert node.refused(work(round_of(1))) == "ledger"
    assert node.rows() == before, "nothing was debited for either"
    node.service.close()
    with pytest.raises(DpflError, match=r"witness .* is gone"):
        opened(witness=str(witness))
    reconciled(node.folder)
    assert opened(witness=str(witness))(join()).head["kind"] == "joined"


def test_a_line_that_was_broken_off_is_no_evidence_and_other_words_are(
    opened: Open, tmp_path: Path
) -> None:
    witness = tmp_path / "b.witness"
    node = opened(witness=str(witness))
    worked(node, 0)
    node.service.close()
    whole = witness.read_bytes()
    witness.write_bytes(whole + whole[:50])
    node = opened(witness=str(witness))
    assert witness.read_bytes().startswith(whole)
    assert len(witness.read_bytes().splitlines()) == 3
    node.service.close()
    witness.write_bytes(b"something else\n" + whole)
    with pytest.raises(DpflError, match="line 1 is not a head"):
        opened(witness=str(witness))


def test_a_witness_in_the_node_s_own_folder_is_refused(opened: Open) -> None:
    with pytest.raises(DpflError, match="on other storage"):
        opened(witness="b.witness")


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
    head = node(join(run="another", heads=[old.to_words()])).head["ledger_head"]["head"]
    assert head["spent"] == [[encode(EVENT), "", 3]]
    assert head["starts"][0][0] == 1


def test_a_statement_of_an_earlier_version_is_valid_and_is_evidence(
    opened: Open, tmp_path: Path
) -> None:
    node, _ = set_back(opened, tmp_path)
    with closing(Ledger.read(tmp_path / "b" / "ledger" / "b.sqlite")) as ledger:
        words = statement(
            ledger, node.service.charter.limit, "", load_private(node.folder / "node.pem")
        )["statement"]
    del words["ledger_head"]
    words |= {"ledger": {"rows": 99, "seal": "0" * 64}, "releases": {encode(EVENT): 5}}
    words["spent"] = words["proven"] = figure(accountant("rdp").epsilon({EVENT: 5}, 1e-5))
    signed = {"statement": words, "signature": sign(words, load_private(node.folder / "node.pem"))}
    assert check(signed, words["public_key"]) == words
    (tmp_path / "old.json").write_text(json.dumps(signed))
    reconciled(node.folder, tmp_path / "old.json")
    assert node.spending() == {EVENT: STEPS + 5}, (
        "nothing says what the two have in common, so all of it is added"
    )


def test_a_statement_whose_head_says_something_else_is_refused(opened: Open) -> None:
    node = opened()
    worked(node, 0)
    key = load_private(node.folder / "node.pem")
    words = node(ask("ask-statement")).head["statement"]["statement"]
    for changes in ({"rows": 1}, {"spent": []}, {"node": "c"}):
        changed = words | {"ledger_head": forged(words["ledger_head"], key, **changes)}
        with pytest.raises(DpflError, match="head in the statement"):
            check({"statement": changed, "signature": sign(changed, key)}, words["public_key"])


def test_a_head_of_a_ledger_with_too_many_kinds_of_releases_says_no_less(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    with closing(Ledger.open(tmp_path / "b.sqlite", "b", "sample", "add/remove one")) as ledger:
        for number in range(5):
            ledger.debit(RUN, f"{RUN}/{number}", gaussian(1.0 + number), 5 - number)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("dpfl.protocol.ledger_head.MOST_KINDS", 3)
            head = head_from_words(sign_head(ledger, key).to_words()).head
    assert head.spent == (
        *((gaussian(1.0 + number), "", 5 - number) for number in range(3)),
        (gaussian(0.0), "", 3),
    )


def test_shares_of_noise_stay_what_they_are_when_they_are_reconciled(tmp_path: Path) -> None:
    """They hold against whoever sees sums only, and the statement goes on to say so."""
    key = Ed25519PrivateKey.generate()
    with closing(Ledger.open(tmp_path / "b.sqlite", "b", "sample", "add/remove one")) as ledger:
        ledger.start()
        ledger.debit(RUN, f"{RUN}/shared 3-1/x", EVENT, 2)
        ledger.debit(RUN, f"{RUN}/y", EVENT, 1)
        signed = sign_head(ledger, key)
    assert set(signed.head.spent) == {(EVENT, "shared 3-1", 2), (EVENT, "", 1)}
    with closing(Ledger.open(tmp_path / "new.sqlite", "b", "sample", "add/remove one")) as ledger:
        _add_all(ledger, [signed], {})
        assert ledger.spending() == {EVENT: 3}
        assert (
            "sums over at least 3"
            in statement(ledger, Limit(30.0, 1e-5), "", key)["statement"]["adversary"]
        )
