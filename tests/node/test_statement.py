"""A node's own word on what it spent: `proven` is no lower than a limit that really stood, at the
delta that is stated.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpfl.errors import DpflError
from dpfl.node.statement import check, statement
from dpfl.privacy import Ledger, Limit, accountant
from dpfl.privacy.accounting.events import gaussian
from dpfl.protocol.keys import public_key_hex, sign
from tests.privacy.workers import EVENT, open_ledger

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
MADE, PLANNED = 5, 400


def spending(path: Path, *limits: Limit) -> Ledger:
    """A ledger under these limits in turn, whose run planned 400 releases and made 5."""
    ledger = open_ledger(path / "node.sqlite", limit=limits[0] if limits else None)
    ledger.plan("run", EVENT, PLANNED)
    ledger.debit("run", "a", EVENT, MADE)
    for later in limits[1:]:
        ledger.set_limit(later)
    return ledger


def said(path: Path, stated: Limit, *limits: Limit, run: str = "run") -> dict[str, Any]:
    with closing(spending(path, *limits)) as ledger:
        return statement(ledger, stated, run, KEY)["statement"]


def cost(count: int, delta: float = 1e-5) -> float:
    return float(accountant("rdp").epsilon({EVENT: count}, delta))


def test_a_limit_that_stood_all_the_time_bounds_what_was_planned(tmp_path: Path):
    limit = Limit(2.0, 1e-5, "rdp")
    assert cost(MADE) < 2.0 < cost(PLANNED)
    words = said(tmp_path, limit, limit)
    assert words["proven"] == 2.0
    assert words["spent"] == pytest.approx(cost(MADE), abs=2e-6)
    assert words["run"]["spent"] == words["spent"]


@pytest.mark.parametrize(
    "stood",
    [
        (Limit(2.0, 1e-3, "rdp"),),
        (Limit(2.0, 1.0001e-5, "rdp"),),
        (Limit(2.0, 1e-5, "rdp"), Limit(2.0, 1e-3, "rdp")),
        (Limit(2.5, 1e-5, "rdp"),),
        (Limit(2.0, 1e-5, "rdp"), Limit(2.5, 1e-5, "rdp")),
        (),
    ],
    ids=[
        "a larger delta",
        "one hardly larger",
        "one larger later",
        "a larger epsilon",
        "one larger later on",
        "no limit",
    ],
)
def test_a_limit_at_a_larger_delta_or_epsilon_bounds_nothing(
    tmp_path: Path, stood: tuple[Limit, ...]
):
    """Fault: a limit of (2, 1e-3) was taken for one of (2, 1e-5), and what was planned for within
    it.
    """
    assert said(tmp_path, Limit(2.0, 1e-5, "rdp"), *stood)["proven"] == pytest.approx(
        cost(PLANNED), abs=2e-6
    )


def test_a_lower_limit_that_stood_is_good_for_a_higher_one(tmp_path: Path):
    assert said(tmp_path, Limit(2.0, 1e-4, "rdp"), Limit(1.9, 1e-5, "rdp"))["proven"] == 2.0


def test_a_smaller_delta_costs_more(tmp_path: Path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    tight, wide = (
        said(tmp_path / name, Limit(50.0, delta, "rdp"))
        for name, delta in (("one", 1e-9), ("two", 1e-3))
    )
    assert tight["spent"] == pytest.approx(cost(MADE, 1e-9), abs=2e-6)
    assert wide["spent"] == pytest.approx(cost(MADE, 1e-3), abs=2e-6)
    assert tight["proven"] > wide["proven"]


def test_the_part_of_a_run_is_that_run_s_alone(tmp_path: Path):
    with closing(spending(tmp_path)) as ledger:
        ledger.debit("other", "b", gaussian(3.0), 2)
        words = statement(ledger, Limit(50.0, 1e-5, "rdp"), "run", KEY)["statement"]
        assert sum(words["releases"].values()) == MADE + 2
        assert sum(words["run"]["releases"].values()) == MADE
        assert words["run"]["id"] == "run"
        assert words["run"]["spent"] < words["spent"]
        assert statement(ledger, Limit(50.0, 1e-5, "rdp"), "", KEY)["statement"]["run"] is None


def signed_again(path: Path, **changes: Any) -> dict[str, Any]:
    with closing(spending(path)) as ledger:
        words = statement(ledger, Limit(50.0, 1e-5, "rdp"), "run", KEY)["statement"] | changes
    return {"statement": words, "signature": sign(words, KEY)}


def test_a_statement_checks_with_its_key_and_with_no_other(tmp_path: Path):
    given = signed_again(tmp_path)
    public, other = (
        public_key_hex(KEY.public_key()),
        public_key_hex(Ed25519PrivateKey.generate().public_key()),
    )
    assert check(given, public) == given["statement"]
    with pytest.raises(DpflError, match="not signed by its key"):
        check(given, other)
    with pytest.raises(DpflError, match="not signed by its key"):
        check({**given, "statement": {**given["statement"], "limit": 60.0}}, public)
    with pytest.raises(DpflError, match="not signed by its key"):
        check({**given, "signature": "00" * 64}, public)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"delta": 1e-3}, "not that of its releases"),
        ({"spent": 0.1}, "not that of its releases"),
        ({"proven": 0.1}, "proves less than was spent"),
        ({"accountant": "rdp-classic"}, "not that of its releases"),
        ({"releases": {}}, "not that of its releases"),
        (
            {"run": {"id": "run", "spent": 0.1, "releases": {}, "adversary": "all"}},
            "not that of its releases",
        ),
        ({"adversary": None}, "against whom"),
        ({"format": 99}, "of this version"),
    ],
)
def test_figures_that_do_not_follow_from_the_releases_are_refused_though_signed(
    tmp_path: Path, changes: dict[str, Any], sentence: str
):
    with pytest.raises(DpflError, match=sentence):
        check(signed_again(tmp_path, **changes), public_key_hex(KEY.public_key()))


def test_an_unbounded_figure_is_above_every_number(tmp_path: Path):
    given = signed_again(tmp_path, proven="unbounded")
    assert check(given, public_key_hex(KEY.public_key()))["proven"] == "unbounded"
