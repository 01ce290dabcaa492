"""Statements of real nodes beside the certificate of their run: who is missing, who is a stranger,
and what differs.
"""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dpfl.certificate import certify, new_key, verify
from dpfl.config.experiment import parse
from dpfl.node.statement import statement
from dpfl.privacy import Ledger
from dpfl.privacy.accounting.events import gaussian
from dpfl.privacy.ledger.limit import Limit
from dpfl.protocol.keys import load_private, public_key_hex, sign
from tests.certificate.forgeries import edit_json, sign_again, write_certificate
from tests.certificate.node_cases import BASE, NAMES, Case, serve
from tests.loopback import federation
from tests.privacy.forging import debit_elsewhere


def test_all_statements_of_a_run_verify(case):
    verdict = verify(case.file, nodes=case.all)
    assert verdict.findings == []
    told = {check.name: check.outcome for check in verdict.checks}
    assert all("4 releases for this run" in told[name] for name in NAMES)


def test_statements_that_were_not_given_are_said_to_be_unchecked(case):
    verdict = verify(case.file)
    assert verdict.findings == []
    (line,) = [line for line in verdict.not_checked if "node-0" in line]
    assert all(name in line for name in NAMES)


@pytest.mark.parametrize("given", [(0,), (0, 2), (1,)])
def test_nodes_whose_statement_is_missing_are_named(case, given):
    """Fault: one of three statements was enough for exit code 0."""
    findings = case.findings(*(case.all[number] for number in given))
    missing = [name for number, name in enumerate(NAMES) if number not in given]
    assert findings == [
        f"The statement of {name}, which took part in the run, is missing." for name in missing
    ]


def test_one_statement_under_two_names_is_not_two(case):
    copy = case.root / "node-1.json"
    shutil.copy(case.statement("node-0"), copy)
    findings = case.findings(case.statement("node-0"), copy, case.statement("node-2"))
    assert any("node-0" in finding and "twice" in finding for finding in findings)
    assert "The statement of node-1, which took part in the run, is missing." in findings
    assert any("twice" in finding for finding in case.findings(*case.all, copy))


def test_one_key_does_not_speak_for_two_nodes(case):
    def rename(words: dict[str, Any]) -> None:
        words["node"] = "node-1"

    forged = case.say("node-0", rename)
    findings = case.findings(case.statement("node-0"), forged, case.statement("node-2"))
    assert any("node-1" in finding and "key" in finding for finding in findings)


def stranger(root: Path, **changes: Any) -> Path:
    """A statement of somebody who was not there, signed with a key of their own."""
    new_key(root / "stranger.pem")
    limit = Limit(8.0, 0.9, "rdp")
    ledger = Ledger.open(root / "stranger.sqlite", "stranger", "sample", "add/remove one", limit)
    given = statement(ledger, limit, "", load_private(root / "stranger.pem"))
    ledger.close()
    words = given["statement"] | changes
    (root / "stranger.json").write_text(
        json.dumps(
            {"statement": words, "signature": sign(words, load_private(root / "stranger.pem"))}
        )
    )
    return root / "stranger.json"


def test_a_strangers_statement_is_named(case):
    """Fault: without the run's folder, a delta of 0.9 and no releases were enough for exit code
    0.
    """
    forged = stranger(case.root)
    assert any("stranger" in finding for finding in case.findings(*case.all, forged))
    assert any("stranger" in finding for finding in case.findings(forged))


def test_a_stranger_under_a_nodes_name_is_named(case):
    new_key(case.root / "own.pem")
    public = public_key_hex(load_private(case.root / "own.pem").public_key())
    forged = case.say(
        "node-1", lambda said: said.update({"public_key": public}), case.root / "own.pem"
    )
    findings = case.findings(case.statement("node-0"), forged, case.statement("node-2"))
    assert any("node-1" in finding and "key" in finding for finding in findings)


def test_an_older_certificate_says_that_keys_and_run_are_not_compared_without_the_folder(case, key):
    sign_again(case.file, forget_nodes, key)
    verdict = verify(case.file, nodes=case.all)
    assert verdict.findings == []
    assert any("keys" in line for line in verdict.not_checked) == case.alone


def forget_nodes(body: dict[str, Any]) -> None:
    new = [name for name in body["hashes"] if name.startswith(("key of ", "run of "))]
    assert len(new) == 4
    for name in (*new, "README.md", "statement.json", "result.json"):
        del body["hashes"][name]


def test_releases_of_other_runs_on_the_servers_ledgers_are_not_expected_of_nodes(case, key):
    """With the run's folder its own are told apart; without it the statement can only have fewer,
    and that is said.
    """
    path = case.root / "run" / "ledger" / "node-1.sqlite"
    with closing(Ledger.existing(path)) as ledger:
        ledger.set_limit(Limit(8.0, 1e-5, "rdp"))
    debit_elsewhere(path, "another run", "more", gaussian(100.0), 3)
    (case.root / "run" / "certificate.json").write_text(json.dumps(certify(case.root / "run", key)))
    (case.root / "run" / "certificate.html").unlink()
    shutil.copy(case.root / "run" / "certificate.json", case.root / "alone.json")
    verdict = verify(case.file, nodes=case.all)
    assert verdict.findings == []
    assert (
        any("node-1" in line and "releases" in line for line in verdict.not_checked) == case.alone
    )


def test_a_run_without_nodes_has_no_statements_of_nodes(run_of, key, case):
    file = write_certificate(run_of("samples"), key)
    (finding,) = verify(file, nodes=case.all[:1]).findings
    assert "had no nodes" in finding


def test_a_statement_of_the_same_node_for_another_run_is_named(original, case, key, tmp_path):
    """The same nodes, with the same keys, in a second run."""
    serve(tmp_path / "again")
    for name in NAMES:
        shutil.copy(
            tmp_path / "again" / "run" / "nodes" / f"{name}.json", case.root / "forged.json"
        )
        words = json.loads((case.root / "forged.json").read_text())["statement"]
        words["public_key"] = public_key_hex(load_private(case.key(name)).public_key())
        words.pop("ledger_head")
        signed = {"statement": words, "signature": sign(words, load_private(case.key(name)))}
        (case.root / f"{name}.json").write_text(json.dumps(signed))
    findings = case.findings(*(case.root / f"{name}.json" for name in NAMES))
    assert len([finding for finding in findings if "another run" in finding]) == 3


@pytest.mark.parametrize("alone", [False, True])
def test_nodes_that_pay_for_nothing_themselves_are_counted_too(tmp_path, key, alone):
    """The federation's one account is the server's; nodes that trust it say that they released
    nothing they account for.
    """
    said = BASE | {
        "algorithm": {"name": "dp-fedavg", "cohort": 3, "tau": 2, "noise_multiplier": 2.0}
    }
    serve(tmp_path, said, tell={"trusted": True})
    case = Case(tmp_path, alone)
    shutil.copy(write_certificate(tmp_path / "run", key), tmp_path / "alone.json")
    assert case.findings() == []
    (finding,) = case.findings(case.statement("node-0"), case.statement("node-2"))
    assert ("2 of 3 nodes" if alone else "The statement of node-1, which took part") in finding


def test_what_statements_say_of_themselves_is_said_to_be_unchecked(case):
    verdict = verify(case.file, nodes=case.all)
    assert (
        "When the nodes signed, their limits and their versions: as the nodes state them."
        in verdict.not_checked
    )
    verdict = verify(
        case.file,
        nodes=[
            case.statement("node-0"),
            case.say("node-1", lambda said: None),
            case.statement("node-2"),
        ],
    )
    assert any("node-1 signed no head" in line for line in verdict.not_checked)


def test_a_certificate_that_leaves_out_a_node_says_without_the_run_that_this_was_not_checked(
    case, key
):
    def drop(body: dict[str, Any]) -> None:
        del body["accounts"][1], body["hashes"]["key of node-1"]
        body["trained"]["clients"] = 2

    sign_again(case.file, drop, key)
    verdict = verify(case.file, nodes=[case.statement("node-0"), case.statement("node-2")])
    if case.alone:
        assert verdict.findings == []
        assert any("which clients took part and how many" in line for line in verdict.not_checked)
    else:
        assert "The account of node-1 is missing from the certificate." in verdict.findings


def test_a_release_that_a_node_never_made_is_named(tmp_path, key):
    """An order that got lost is in the server's ledger and not in the node's; the node's ledger
    could have lost it as well.
    """
    transport, terms = federation(tmp_path / "nodes", parse(BASE))
    listed, send = {name: public_key_hex(one) for name, one in terms.nodes.items()}, transport.send

    def lose(address: str, message: bytes) -> str:
        return send(
            "node-0" if address == "node-2" and b'"order":"1/train"' in message else address,
            message,
        )

    transport.send = lose  # type: ignore[method-assign]
    parse(BASE | {"server": {"nodes": listed}}).serve(transport, terms, tmp_path / "run")
    write_certificate(tmp_path / "run", key)
    (finding,) = Case(tmp_path, False).findings()
    assert "node-2 counts 2 x" in finding
    assert "lost on the way, or are missing from its ledger" in finding


def test_an_account_of_the_server_that_went_missing_is_named(case, key):
    sign_again(case.root / "run" / "certificate.json", lambda body: body["accounts"].pop(1), key)
    shutil.copy(case.root / "run" / "certificate.json", case.root / "alone.json")
    assert any("account" in finding for finding in case.findings())


def test_a_file_that_is_no_statement_is_named_and_ends_nothing(case):
    (case.root / "words.json").write_text("[]")
    findings = case.findings(*case.all, case.root / "words.json", case.root / "none.json")
    assert len(findings) == 2
    assert "words.json" in findings[0]
    assert "none.json" in findings[1]


def test_the_servers_list_of_who_joined_is_not_what_decides_who_is_missing(case):
    (case.root / "run" / "nodes.json").write_text(json.dumps({"node-0": {"place": 0, "size": 1}}))
    edit_json(case.root / "run" / "nodes.json", lambda told: None)
    assert len(case.findings(case.statement("node-0"))) == 2
