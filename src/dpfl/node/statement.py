"""A node's signed statement of what it has spent, computed from its ledger and nothing else.

Whoever has the node's public key can check a statement without the node and without the server: the
signature, and that every epsilon in it is that of the listed releases.
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
from dpfl.privacy.mechanisms.noises.noise_shares import weakest_shares
from dpfl.privacy.statement import figure
from dpfl.protocol.head_words import check_in_statement
from dpfl.protocol.keys import is_signed, public_key_hex, sign
from dpfl.protocol.ledger_head import LedgerHead, sign_head

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
"""All fields of a statement. Earlier versions left some of them out."""
LAST_DIGIT = 2e-6
"""How far the figures of two machines may differ."""
ARITHMETIC = "exact"
"""The arithmetic of every node: what a unit contributes does not depend on who else is in its batch
(docs/privacy.md, "Float arithmetic").
"""
EVERYBODY = "the server, other clients and the public, who may see all that left this node"


def statement(ledger: Ledger, limit: Limit, run: str, key: Ed25519PrivateKey) -> dict[str, Any]:
    """States what the ledger counts.

    `spent` is the epsilon of the releases so far. `proven` also covers what runs have planned and
    may still release, up to the owner's limit if every debit was held to it.

    Args:
        ledger: The node's ledger.
        limit: The limit of all runs together; its delta and accountant are those of the figures.
        run: A run that is stated by itself as well; empty for none.
        key: The node's key.

    Returns:
        The statement and its signature, as JSON has them.
    """
    spending, by = ledger.spending(), accountant(limit.accountant)
    used_epsilon = by.epsilon(spending, limit.delta)
    ceiling = limit.epsilon if _was_always_limited(ledger, limit) else math.inf
    planned_epsilon = min(by.epsilon(proven_events(ledger), limit.delta), ceiling)
    tail = ledger.tail
    words = {
        "format": FORMAT,
        "node": ledger.account.owner,
        "public_key": public_key_hex(key.public_key()),
        "unit": ledger.unit,
        "neighbours": ledger.account.neighbours,
        "delta": limit.delta,
        "accountant": limit.accountant,
        "limit": limit.epsilon,
        "proven": figure(max(used_epsilon, planned_epsilon)),
        "spent": figure(used_epsilon),
        "releases": _lines(spending),
        "adversary": _adversary(ledger),
        "arithmetic": ARITHMETIC,
        "run": _run_part(ledger, limit, run) if run else None,
        "ledger": {"rows": tail.links, "seal": tail.seal},
        "ledger_head": sign_head(ledger, key).to_words(),
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "version": importlib.metadata.version("dpfl"),
    }
    return {"statement": words, "signature": sign(words, key)}


def _run_part(ledger: Ledger, limit: Limit, run: str) -> dict[str, Any]:
    spending = ledger.spending_within(SubLimit(limit, run=run))
    used_epsilon = figure(accountant(limit.accountant).epsilon(spending, limit.delta))
    return {
        "id": run,
        "spent": used_epsilon,
        "releases": _lines(spending),
        "adversary": _adversary(ledger, run),
    }


def check(signed_statement: Mapping[str, Any], public_key: str) -> Mapping[str, Any]:
    """Verifies a statement.

    Args:
        signed_statement: The statement and its signature, as JSON has them.
        public_key: The node's public key, in hexadecimal digits.

    Returns:
        The fields of the statement.

    Raises:
        DpflError: Another key signed it, it was changed, or its figures are not those of its
            releases.
    """
    words = signed_statement.get("statement")
    if not isinstance(words, Mapping) or words.get("format") != FORMAT:
        raise DpflError(
            "This is not a node's statement in the format of this version; ask the node's owner "
            "for a new one."
        )
    if unknown := words.keys() - WORDS:
        raise DpflError(
            f"The statement of {words.get('node')!r} has unknown fields: "
            f"{', '.join(sorted(map(str, unknown)))}."
        )
    if words.get("public_key") != public_key or not is_signed(
        words, str(signed_statement.get("signature")), public_key
    ):
        raise DpflError(
            f"The statement of {words.get('node')!r} is not signed by its key, or was changed."
        )
    by = accountant(words["accountant"])
    check_target(1.0, words["delta"])
    _check_figures(words, by)
    if head := check_in_statement(words):
        _check_by_head(words, head, by)
    return words


def _check_figures(words: Mapping[str, Any], by: Accountant) -> None:
    """Computes every epsilon again from the releases beside it."""
    for part in (words, words["run"] or {"spent": figure(0.0), "releases": {}}):
        spending = {decode(line): int(count) for line, count in part["releases"].items()}
        if figure(by.epsilon(spending, words["delta"])) != part["spent"]:
            raise DpflError(
                f"The epsilon in the statement of {words['node']!r} is not that of its releases."
            )
    if not all(isinstance(part["adversary"], str) for part in (words, words["run"] or words)):
        raise DpflError(f"The statement of {words['node']!r} does not say against whom it holds.")
    if _number(words["proven"]) < _number(words["spent"]):
        raise DpflError(f"The statement of {words['node']!r} proves less than was spent.")


def _check_by_head(words: Mapping[str, Any], head: LedgerHead, by: Accountant) -> None:
    """Compares a statement with the head of the ledger in it. What was fixed beforehand must be
    proven, up to the owner's limit, and shares of noise protect against fewer adversaries.
    """
    planned_events: EventCounts = {}
    for event, count in (
        *((event, count) for event, _, count in head.releases),
        *head.planned_counts,
    ):
        planned_events = add(planned_events, event, count)
    if _number(words["proven"]) + LAST_DIGIT < min(
        by.epsilon(planned_events, words["delta"]), float(words["limit"])
    ):
        raise DpflError(
            f"The statement of {words['node']!r} proves less than its runs fixed beforehand."
        )
    if words["adversary"] != _against(mark for _, mark, _ in head.releases):
        raise DpflError(
            f"The statement of {words['node']!r} names an adversary against whom it does not hold: "
            f"{words['adversary']}."
        )


def _adversary(ledger: Ledger, run: str = "") -> str:
    """Says against whom the guarantee holds, for all releases or for those of one run."""
    names = [release for name, release, *_ in ledger.debits() if run in ("", name)]
    return _against(name.split("/")[1] for name in names if "/" in name)


def _against(marks: Iterable[str]) -> str:
    least_shares = weakest_shares(marks)
    return least_shares.adversary if least_shares else EVERYBODY


def _number(figure: Any) -> float:
    return math.inf if figure == "unbounded" else float(figure)


def _was_always_limited(ledger: Ledger, limit: Limit) -> bool:
    """Says whether every debit was made under this limit or a lower one, at a delta no larger."""
    return all(
        limit_then is not None
        and limit_then.epsilon <= limit.epsilon
        and limit_then.delta <= limit.delta
        for limit_then in ledger.limits_since_first_debit()
    )


def _lines(counts: EventCounts) -> dict[str, int]:
    return {encode(event): count for event, count in counts.items()}
