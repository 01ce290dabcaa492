"""Figures of a certificate, and what is computed again from them: on one by hand, at borders that
whole runs do not reach.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from dpfl.certificate import contents, recompute
from dpfl.certificate.contents import (
    AccountSection,
    Certificate,
    ClaimSection,
    GuaranteeSection,
    ReleaseSection,
    ReportedSection,
    Signer,
    TrainingSection,
)
from dpfl.certificate.figures import TOLERANCE, between, number, same_figure, stated_figure
from dpfl.privacy import accountant
from dpfl.privacy.accounting.events import describe, encode, gaussian
from dpfl.run.digests import code_sha256

DELTA = 1e-5
EVENT = gaussian(2.0)
EPSILON = stated_figure(accountant("rdp").epsilon({EVENT: 3}, DELTA))


def account(**changes: Any) -> AccountSection:
    released = ReleaseSection(event=encode(EVENT), kind=describe(EVENT), count=3)
    usual: dict[str, Any] = {
        "name": "a",
        "ledger": "a.sqlite",
        "proven": EPSILON,
        "releases": [released],
        "debits": 3,
        "other_runs": 0,
        "seal": "",
    }
    return AccountSection(**usual | changes)


def certificate(
    guarantee: dict[str, Any] | None = None, claimed: dict[str, Any] | None = None, **changes: Any
) -> Certificate:
    trained = TrainingSection(
        run="r",
        algorithm="a",
        variant="sound",
        model="m",
        clients=1,
        partition="iid",
        entropy="system",
        noise="secure",
        budget=None,
        rounds=1,
        iterations=3,
    )
    stated: dict[str, Any] = {
        "unit": "sample",
        "neighbours": "add/remove one",
        "delta": DELTA,
        "adversary": "",
        "accountant": "rdp",
        "proven": EPSILON,
        "median": EPSILON,
        "lowest": EPSILON,
        "used": EPSILON,
        "unaccounted": [],
        "assumptions": [],
        "warnings": [],
    }
    paper: dict[str, Any] = {"epsilon": None, "text": "nothing", "accountant": None, "stated": {}}
    words: dict[str, Any] = {
        "format": "dpfl certificate 2",
        "issued": "2030-01-01T00:00:00+00:00",
        "trained": trained,
        "accounts": [account()],
        "guarantee": GuaranteeSection(**stated | (guarantee or {})),
        "claimed": ClaimSection(**paper | (claimed or {})),
        "reported": ReportedSection(started="", accuracy=None, stopped_by="", audit=None),
        "hashes": {},
        "versions": {},
        "certified_by": {"dpfl": contents.version(), "code": code_sha256()},
        "signer": Signer(public_key="", fingerprint=""),
    }
    return Certificate(**words | changes)


class TestFigures:
    def test_figures_are_the_same_to_the_last_of_six_digits(self) -> None:
        assert TOLERANCE == 2e-6
        assert same_figure(1.0, 1.000001)
        assert same_figure(1.000001, 1.0)
        assert not same_figure(1.0, 1.000003)
        assert not same_figure(1.000003, 1.0)
        assert not same_figure(1.0, -1.0)
        assert same_figure("unbounded", "unbounded")
        assert not same_figure("unbounded", 1.0)
        assert same_figure(None, None)
        assert not same_figure(None, 0.0)
        assert not same_figure(0.0, None)

    def test_a_figure_between_two_others(self) -> None:
        for value, inside in (
            (1.0, True),
            (2.0, True),
            (0.999999, True),
            (2.000001, True),
            (0.999997, False),
            (2.000003, False),
        ):
            assert between(1.0, value, 2.0) is inside
        assert between(0.0, 5.0, "unbounded")
        assert not between(0.0, "unbounded", 5.0)
        assert between(None, None, None)
        for figures in (
            (None, 1.0, 2.0),
            (1.0, None, 2.0),
            (1.0, 1.5, None),
            (None, None, 1.0),
            (None, 1.0, None),
        ):
            assert not between(*figures)

    def test_what_is_no_epsilon_is_an_error(self) -> None:
        assert number("unbounded") == math.inf
        assert (number(3), number(0.5)) == (3.0, 0.5)
        for odd in (True, None, "1", math.nan, [1.0]):
            with pytest.raises(ValueError, match="not an epsilon"):
                number(odd)


class TestEpsilon:
    def findings(self, guarantee: dict[str, Any] | None = None, **changes: Any) -> tuple[str, ...]:
        return recompute.check_epsilon(certificate(guarantee, **changes)).findings

    def test_a_true_certificate_has_no_findings(self) -> None:
        assert self.findings() == ()
        assert self.findings({"used": 0.5}) == ()

    def test_only_accountants_that_prove_something_count(self) -> None:
        assert "gdp-clt is an approximation" in self.findings({"accountant": "gdp-clt"})[0]
        assert "There is no accountant" in self.findings({"accountant": "mine"})[0]
        assert self.findings({"delta": 0.0})
        assert self.findings({"delta": 1.0})

    def test_what_left_without_protection_has_no_epsilon(self) -> None:
        assert "left unprotected (raw values)" in self.findings({"unaccounted": ["raw values"]})[0]
        (finding,) = self.findings({"proven": "unbounded"})
        assert "largest epsilon of the accounts" in finding

    @pytest.mark.parametrize("name", ["proven", "median", "lowest"])
    def test_every_figure_is_compared(self, name: str) -> None:
        said = self.findings({name: EPSILON - 0.001, "used": 0.0})
        assert len(said) == 1
        assert f"epsilon of the accounts is {EPSILON}" in said[0]

    def test_more_cannot_be_used_than_is_proven(self) -> None:
        assert "more than is proven" in self.findings({"used": EPSILON + 0.001})[0]

    def test_releases_are_listed_once_with_a_count_of_at_least_one(self) -> None:
        once = ReleaseSection(event=encode(EVENT), kind=describe(EVENT), count=1)
        single = stated_figure(accountant("rdp").epsilon({EVENT: 1}, DELTA))
        alone = dict.fromkeys(("proven", "median", "lowest", "used"), single)
        assert self.findings(alone, accounts=[account(releases=[once], proven=single)]) == ()
        for releases in (
            [once, once],
            [once.model_copy(update={"count": 0})],
            [once.model_copy(update={"count": -1})],
        ):
            assert any(
                "not listed once each" in finding
                for finding in self.findings(accounts=[account(releases=releases)])
            )
        odd = [ReleaseSection(event=encode(EVENT), kind="harmless", count=3)]
        assert "is called 'harmless'" in self.findings(accounts=[account(releases=odd)])[0]

    def test_the_named_accountant_is_asked_but_where_the_quick_one_is_far_off(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[str] = []

        class Fixed:
            def __init__(self, name: str) -> None:
                self.name = name

            def epsilon(self, spent: object, delta: float) -> float:
                asked.append(self.name)
                return 200.0

        monkeypatch.setattr(recompute, "accountant", Fixed)
        for stated, by in (
            (10.0, "pld"),
            (200.0, "pld"),
            (9.9, "rdp"),
            (1.0, "rdp"),
            ("unbounded", "rdp"),
        ):
            asked.clear()
            assert recompute._epsilon_again({EVENT: 1}, "pld", DELTA, stated) == 200.0
            assert asked[-1] == by


class TestClaim:
    def check(self, **claimed: Any) -> Any:
        return recompute.check_claim(certificate(claimed=claimed))

    def test_a_claim_is_computed_again_where_it_has_an_accountant(self) -> None:
        stated = {encode(EVENT): 3}
        assert self.check().outcome == "nothing (nothing)"
        assert "by a formula" in self.check(epsilon=1.0).outcome
        good = self.check(epsilon=EPSILON, accountant="rdp", stated=stated)
        assert (good.findings, "computed again" in good.outcome) == ((), True)
        assert (
            "What the paper counts costs"
            in self.check(epsilon=1.0, accountant="rdp", stated=stated).findings[0]
        )
        assert (
            "cannot be computed again"
            in self.check(epsilon=1.0, accountant="rdp", stated={"{}": 1}).findings[0]
        )


class TestListing:
    def findings(self, names: list[str] | None = None, **changes: Any) -> tuple[str, ...]:
        return recompute.check_listing(certificate(**changes), names).findings

    def test_accounts_are_listed_once_by_their_own_ledgers(self) -> None:
        assert self.findings() == self.findings(["a"]) == ()
        assert self.findings(accounts=[account(other_runs=0, debits=0)]) == ()
        for odd in ({"other_runs": -1}, {"debits": -1}):
            assert "cannot have" in self.findings(accounts=[account(**odd)])[0]
        assert "listed twice" in self.findings(accounts=[account(), account()])[0]
        assert "which is another's" in self.findings(accounts=[account(ledger="b.sqlite")])[0]
        assert "lists 0 accounts of 1 clients" in self.findings(accounts=[])[0]
        assert "The account of b is missing" in self.findings(["a", "b"])[0]


class TestIssue:
    def check(self, last: float | None = None, **changes: Any) -> Any:
        return recompute.check_issue(certificate(**changes), last)

    def test_when_and_by_what_it_was_made(self) -> None:
        at = 1893456000.0
        for last in (None, at, at + 0.9, at - 1):
            assert self.check(last).findings == ()
        assert "before the last debit" in self.check(at + 1).findings[0]
        for odd in ("2030-01-01T00:00:00", "yesterday", ""):
            assert "does not say when" in self.check(issued=odd).findings[0]

    def test_certified_by_this_code_or_another_or_by_nothing(self) -> None:
        good = self.check()
        assert (good.findings, len(good.unchecked)) == ((), 1)
        assert "does not hold a version" in self.check(certified_by={}).findings[0]
        assert (
            "does not hold a version"
            in self.check(certified_by={"dpfl": "1", "code": "x", "more": "y"}).findings[0]
        )
        other = self.check(certified_by={"dpfl": "1", "code": "x"})
        assert (other.findings, len(other.unchecked)) == ((), 2)
        assert (
            "this code is dpfl"
            in self.check(certified_by={"dpfl": "99", "code": code_sha256()}).findings[0]
        )


@pytest.mark.parametrize(
    "odd", [{"count": "3"}, {"count": 3.0}, {"count": True}, {"event": 1}, {"more": 1}]
)
def test_values_of_another_kind_are_not_taken_for_the_right_one(odd: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        ReleaseSection(**{"event": encode(EVENT), "kind": "", "count": 3} | odd)
