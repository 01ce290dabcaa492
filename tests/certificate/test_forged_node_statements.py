"""Statements that a node signed and that contradict its run: each difference is a finding."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dpfl.certificate import new_key
from dpfl.errors import DpflError
from dpfl.node.statement import check, statement
from dpfl.privacy import Ledger
from dpfl.privacy.accounting.events import gaussian
from dpfl.privacy.ledger.limit import Limit
from dpfl.protocol.keys import load_private, sign
from tests.certificate.node_cases import Case

DIFFERENT: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "a delta of nearly one": (lambda said: said.update(delta=0.9), "delta"),
    "another unit": (lambda said: said.update(unit="person"), "unit"),
    "other neighbours": (lambda said: said.update(neighbours="replace one"), "neighbours"),
    "no run": (lambda said: said.update(run=None), "no run"),
    "another run": (lambda said: said["run"].update(id="0" * 32), "another run"),
    "an accountant that proves nothing": (
        lambda said: said.update(accountant="gdp-clt"),
        "gdp-clt",
    ),
}


def spend_again(words: dict[str, Any]) -> None:
    """Figures to match the releases, delta and accountant."""
    from dpfl.node import statement as statements

    for part in (words, words["run"] or {"releases": {}}):
        spent = {statements.decode(line): count for line, count in part["releases"].items()}
        part["spent"] = statements.figure(
            statements.accountant(words["accountant"]).epsilon(spent, words["delta"])
        )
    words["proven"] = words["spent"]


@pytest.mark.parametrize("what", DIFFERENT)
def test_what_differs_from_the_certificate_is_a_finding(case, what):
    change, words = DIFFERENT[what]

    def both(said: dict[str, Any]) -> None:
        change(said)
        spend_again(said)

    forged = case.say("node-1", both)
    findings = case.findings(case.statement("node-0"), forged, case.statement("node-2"))
    assert any("node-1" in finding and words in finding for finding in findings), findings


@pytest.mark.parametrize("count", [1, 3, 5, 400])
def test_releases_that_differ_from_what_was_ordered_are_a_finding(case, count):
    """Fault: they were a remark in the outcome."""

    def change(said: dict[str, Any]) -> None:
        for part in (said, said["run"]):
            part["releases"] = dict.fromkeys(part["releases"], count)
        spend_again(said)

    (finding,) = case.findings(
        case.statement("node-0"), case.say("node-1", change), case.statement("node-2")
    )
    assert f"node-1 counts {count} x" in finding
    assert "4" in finding


def test_releases_of_another_kind_are_a_finding(case):
    def change(said: dict[str, Any]) -> None:
        for part in (said, said["run"]):
            part["releases"] = {'{"mechanism":"gaussian","noise_multiplier":9.0}': 4}
        spend_again(said)

    one, other = case.findings(
        case.statement("node-0"), case.say("node-1", change), case.statement("node-2")
    )
    assert "node-1 counts 4 x Gaussian noise, multiplier 9" in one
    assert "node-1 counts 0 x" in other


def test_more_for_a_run_than_for_all_runs_is_a_finding(case):
    def change(said: dict[str, Any]) -> None:
        said["releases"] = {}
        spend_again(said)

    (finding,) = case.findings(
        case.statement("node-0"), case.say("node-1", change), case.statement("node-2")
    )
    assert "and 0 for all of its runs" in finding


@pytest.mark.parametrize("count", [4.5, -4, True, "4"])
def test_counts_are_whole_numbers(case, count):
    def change(said: dict[str, Any]) -> None:
        said["run"]["releases"] = dict.fromkeys(said["run"]["releases"], count)

    findings = case.findings(
        case.statement("node-0"), case.say("node-1", change), case.statement("node-2")
    )
    assert findings


def test_a_smaller_delta_of_an_owner_is_no_finding(case):
    def change(said: dict[str, Any]) -> None:
        said["delta"] = 1e-6
        spend_again(said)

    assert (
        case.findings(
            case.statement("node-0"), case.say("node-1", change), case.statement("node-2")
        )
        == []
    )


FORGED: dict[str, tuple[dict[str, Any], str]] = {
    "a delta of nothing": (
        {"delta": 0.0, "spent": "unbounded", "proven": "unbounded"},
        "delta must lie between 0 and 1",
    ),
    "a word more": ({"approved_by": "an authority"}, "has unknown fields: approved_by"),
}


@pytest.mark.parametrize("what", FORGED)
def test_words_that_no_node_says_are_a_finding(case, what):
    """Fault: both passed."""
    changes, words = FORGED[what]

    def change(said: dict[str, Any]) -> None:
        said.update(changes)
        said["run"]["spent"] = said["spent"]

    findings = case.findings(
        case.statement("node-0"), case.say("node-1", change), case.statement("node-2")
    )
    assert any(words in finding for finding in findings), findings


def beside_head(case: Case, name: str, head: dict[str, Any], **changes: Any) -> Path:
    """A statement with another head of its ledger, and other words, signed by its own key."""
    key, words = (
        load_private(case.key(name)),
        json.loads(case.statement(name).read_text())["statement"],
    )
    own = words["ledger_head"]["head"] | head
    words |= changes | {"ledger_head": {"head": own, "signature": sign(own, key)}}
    (case.root / "forged.json").write_text(
        json.dumps({"statement": words, "signature": sign(words, key)})
    )
    return case.root / "forged.json"


def test_what_a_head_says_otherwise_than_its_statement_is_a_finding(case):
    """Fault: unit, neighbours, plans and adversary were not compared."""
    line = next(iter(json.loads(case.statement("node-1").read_text())["statement"]["releases"]))
    for head, changes, words in (
        ({"unit": "person"}, {}, "counts something else"),
        ({"neighbours": "replace one"}, {}, "counts something else"),
        ({}, {"adversary": "nobody at all"}, "against whom it does not hold"),
        ({"spent": [[line, "shared 3-1", 4]]}, {}, "against whom it does not hold"),
        ({"planned": [[line, 4000]]}, {}, "proves less than its runs fixed beforehand"),
    ):
        forged = beside_head(case, "node-1", head, **changes)
        findings = case.findings(case.statement("node-0"), forged, case.statement("node-2"))
        assert any(words in finding for finding in findings), (head, changes, findings)
    assert (
        case.findings(
            case.statement("node-0"), beside_head(case, "node-1", {}), case.statement("node-2")
        )
        == []
    )


def test_a_proven_epsilon_below_what_was_planned_is_a_finding(tmp_path):
    new_key(tmp_path / "key.pem")
    private = load_private(tmp_path / "key.pem")
    with closing(
        Ledger.open(
            tmp_path / "b.sqlite", "b", "sample", "add/remove one", Limit(30.0, 1e-5, "rdp")
        )
    ) as ledger:
        ledger.plan("run", gaussian(3.0), 10)
        ledger.debit("run", "run/one", gaussian(3.0), 2)
        words = statement(ledger, Limit(30.0, 1e-5, "rdp"), "run", private)["statement"]
    assert check(signed_again(words, private), words["public_key"]) == words
    assert words["proven"] > words["spent"]
    with pytest.raises(DpflError, match="fixed beforehand"):
        check(signed_again(words | {"proven": words["spent"]}, private), words["public_key"])


def signed_again(words: dict[str, Any], key: Any) -> dict[str, Any]:
    return {"statement": words, "signature": sign(words, key)}
