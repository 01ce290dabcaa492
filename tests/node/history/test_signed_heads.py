"""Heads that a node signed, from statements of every version."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpfl.errors import DpflError
from dpfl.node.statement import check, statement
from dpfl.privacy import Ledger, accountant
from dpfl.privacy.accounting.events import encode, gaussian
from dpfl.privacy.statement import figure
from dpfl.protocol.head_words import head_from_words
from dpfl.protocol.keys import load_private, sign
from dpfl.protocol.ledger_head import sign_head
from tests.node.history.test_rollback import forged, reconciled, set_back, worked
from tests.node.loopback import (
    EVENT,
    RUN,
    STEPS,
    Open,
    ask,
)


def test_a_statement_of_an_earlier_version_is_valid_and_is_evidence(
    opened: Open, tmp_path: Path
) -> None:
    node, _ = set_back(opened, tmp_path)
    with closing(Ledger.read(tmp_path / "b" / "ledger" / "b.sqlite")) as ledger:
        words = statement(
            ledger, node.service.policy.limit, "", load_private(node.folder / "node.pem")
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
    words = node(ask("ask-statement")).header["statement"]["statement"]
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
    assert head.releases == (
        *((gaussian(1.0 + number), "", 5 - number) for number in range(3)),
        (gaussian(0.0), "", 3),
    )
