"""Figures of a certificate, and what is computed again from them: on one by hand, at borders that
whole runs do not reach.
"""

from __future__ import annotations

from typing import Any

import pytest

from dpfl.certificate import recompute
from dpfl.certificate.figures import stated_figure
from dpfl.certificate.sections import (
    ReleaseSection,
)
from dpfl.privacy import accountant
from dpfl.privacy.accounting.events import describe, encode
from dpfl.run.records.digests import code_sha256
from tests.certificate.by_hand import DELTA, EPSILON, EVENT, account, certificate


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
        assert (
            "without protection (raw values)" in self.findings({"unaccounted": ["raw values"]})[0]
        )
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
        assert (
            "which belongs to another account"
            in self.findings(accounts=[account(ledger="b.sqlite")])[0]
        )
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
        assert (good.findings, len(good.not_checked)) == ((), 1)
        assert "instead of a version" in self.check(certified_by={}).findings[0]
        assert (
            "instead of a version"
            in self.check(certified_by={"dpfl": "1", "code": "x", "more": "y"}).findings[0]
        )
        other = self.check(certified_by={"dpfl": "1", "code": "x"})
        assert (other.findings, len(other.not_checked)) == ((), 2)
        assert (
            "this code is dpfl"
            in self.check(certified_by={"dpfl": "99", "code": code_sha256()}).findings[0]
        )
