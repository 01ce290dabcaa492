"""A node's own word on what it spent: computed from its ledger and from nothing else, signed with
its own key.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import math
from collections.abc import Iterable, Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpfl.errors import DpflError
from dpfl.privacy import Ledger, accountant
from dpfl.privacy.accounting.accountant import Accountant
from dpfl.privacy.accounting.calibration import check_target
from dpfl.privacy.accounting.events import EventCounts, add, decode, encode
from dpfl.privacy.ledger.limit import Limit, SubLimit
from dpfl.privacy.ledger.plans import proven_events
from dpfl.privacy.mechanisms.noise_shares import weakest_shares
from dpfl.privacy.statement import figure
from dpfl.protocol.keys import is_signed, raw, sign
from dpfl.protocol.ledger_head import LedgerHead, check_in_statement, sign_head

FORMAT = 1
WORDS = {
    "format",
    "node",
    "public_key",
    "unit",
    "neighbours",
    "delta",
    "accountant",
    "limit",
    "proven",
    "spent",
    "releases",
    "adversary",
    "arithmetic",
    "run",
    "ledger",
    "ledger_head",
    "at",
    "version",
}
"""All that a statement says; earlier versions left some of it out."""
LAST_DIGIT = 2e-6
"""By which figures of two machines may differ."""
ARITHMETIC = "exact"
"""Nodes know no other: a unit's numbers do not depend on who else is in a batch (docs/privacy.md,
"Float arithmetic").
"""
EVERYBODY = "the server, other clients and the public, who may see all that left this node"


def statement(ledger: Ledger, limit: Limit, run: str, key: Ed25519PrivateKey) -> dict[str, Any]:
    """Of all that the ledger holds, and of one run, where one is named. `proven` is for what was
    fixed beforehand.
    """
    spent, by = ledger.spending(), accountant(limit.accountant)
    used, ceiling = (
        by.epsilon(spent, limit.delta),
        limit.epsilon if _held(ledger, limit) else math.inf,
    )
    tail = ledger.tail
    words = {
        "format": FORMAT,
        "node": ledger.account.owner,
        "public_key": raw(key.public_key()),
        "unit": ledger.unit,
        "neighbours": ledger.account.neighbours,
        "delta": limit.delta,
        "accountant": limit.accountant,
        "limit": limit.epsilon,
        "proven": figure(max(used, min(by.epsilon(proven_events(ledger), limit.delta), ceiling))),
        "spent": figure(used),
        "releases": _lines(spent),
        "adversary": _adversary(ledger),
        "arithmetic": ARITHMETIC,
        "run": _part(ledger, limit, run) if run else None,
        "ledger": {"rows": tail.links, "seal": tail.seal},
        "ledger_head": sign_head(ledger, key).to_words(),
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "version": importlib.metadata.version("dpfl"),
    }
    return {"statement": words, "signature": sign(words, key)}


def _part(ledger: Ledger, limit: Limit, run: str) -> dict[str, Any]:
    spent = ledger.spending_within(SubLimit(limit, run=run))
    used = figure(accountant(limit.accountant).epsilon(spent, limit.delta))
    return {
        "id": run,
        "spent": used,
        "releases": _lines(spent),
        "adversary": _adversary(ledger, run),
    }


def check(given: Mapping[str, Any], public_key: str) -> Mapping[str, Any]:
    """What a statement says, if this key signed it and its figures are those of its releases."""
    words = given.get("statement")
    if not isinstance(words, Mapping) or words.get("format") != FORMAT:
        raise DpflError("This is not a node's statement of this version.")
    if odd := words.keys() - WORDS:
        raise DpflError(
            f"The statement of {words.get('node')!r} says what no node says: "
            f"{', '.join(sorted(map(str, odd)))}."
        )
    if words.get("public_key") != public_key or not is_signed(
        words, str(given.get("signature")), public_key
    ):
        raise DpflError(
            f"The statement of {words.get('node')!r} is not signed by its key, or was changed."
        )
    by = accountant(words["accountant"])
    check_target(1.0, words["delta"])
    for part in (words, words["run"] or {"spent": figure(0.0), "releases": {}}):
        spent = {decode(line): int(count) for line, count in part["releases"].items()}
        if figure(by.epsilon(spent, words["delta"])) != part["spent"]:
            raise DpflError(
                f"The epsilon in the statement of {words['node']!r} is not that of its releases."
            )
    if not all(isinstance(part["adversary"], str) for part in (words, words["run"] or words)):
        raise DpflError(f"The statement of {words['node']!r} does not say against whom it holds.")
    if _number(words["proven"]) < _number(words["spent"]):
        raise DpflError(f"The statement of {words['node']!r} proves less than was spent.")
    if head := check_in_statement(words):
        _check_by_head(words, head, by)
    return words


def _check_by_head(words: Mapping[str, Any], head: LedgerHead, by: Accountant) -> None:
    """What was fixed beforehand is proven, up to the owner's limit; and shares of noise protect
    against fewer.
    """
    planned: EventCounts = {}
    for event, count in (*((event, count) for event, _, count in head.spent), *head.planned):
        planned = add(planned, event, count)
    if _number(words["proven"]) + LAST_DIGIT < min(
        by.epsilon(planned, words["delta"]), float(words["limit"])
    ):
        raise DpflError(
            f"The statement of {words['node']!r} proves less than its runs fixed beforehand."
        )
    if words["adversary"] != _against(mark for _, mark, _ in head.spent):
        raise DpflError(
            f"The statement of {words['node']!r} holds against others than it says: "
            f"{words['adversary']}."
        )


def _adversary(ledger: Ledger, run: str = "") -> str:
    """Against whom all that was released holds, or all for one run: who sees it, or only sums that
    it is in.
    """
    names = [release for of, release, *_ in ledger.debits() if run in ("", of)]
    return _against(name.split("/")[1] for name in names if "/" in name)


def _against(marks: Iterable[str]) -> str:
    shared = weakest_shares(marks)
    return shared.adversary if shared else EVERYBODY


def _number(figure: Any) -> float:
    return math.inf if figure == "unbounded" else float(figure)


def _held(ledger: Ledger, limit: Limit) -> bool:
    """Whether every debit was held against this limit, or against a lower one, at a delta that is
    no larger.
    """
    return all(
        one is not None and one.epsilon <= limit.epsilon and one.delta <= limit.delta
        for one in ledger.limits_since_first_debit()
    )


def _lines(spent: EventCounts) -> dict[str, int]:
    return {encode(event): count for event, count in spent.items()}
