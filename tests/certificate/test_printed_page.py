"""The page to print says what the certificate says, and nothing that a name could smuggle in."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from dpfl.certificate import Certificate, certify, printed_page
from dpfl.certificate.printed_page import MOST_LISTED, _releases, page
from dpfl.privacy.statement import rounded_up
from tests.certificate.by_hand import account, certificate


@pytest.fixture
def drawn(run_of, key):
    def draw(name, **changes):
        made = certify(run_of(name), key)
        certificate = Certificate.model_validate(made["certificate"] | changes)
        return certificate, page(certificate, made["signature"])

    return draw


def test_the_page_names_what_a_guarantee_needs(drawn):
    certificate, html = drawn("samples")
    stated = certificate.guarantee
    for text in (
        stated.unit,
        stated.neighbours,
        "1e-05",
        stated.accountant,
        f"{rounded_up(stated.proven):.4f}",
    ):
        assert text in html
    for value in (
        certificate.signer.fingerprint[7:],
        certificate.hashes["model.safetensors"],
        certificate.hashes["federation"],
    ):
        assert value in html
    assert '<p class="headline proven">' in html


def test_the_page_needs_nothing_from_elsewhere(drawn):
    _, html = drawn("samples")
    assert not re.search(r"https?:|src=|@import|<script|url\(", html)


def test_no_guarantee_is_said_first_and_loudly(drawn):
    _, html = drawn("published")
    assert html.index("No guarantee</b>") < html.index("The guarantee")
    assert '<p class="headline nothing">' in html
    assert "Released without accounting" in html


def test_names_are_text_and_never_markup(drawn):
    audit = {"measured": "<b>0</b>", "verdict": "<script>alert(1)</script>"}
    told = {"started": "", "accuracy": None, "stopped_by": "epsilon", "audit": audit}
    _, html = drawn("samples", reported=told)
    assert "<script>" not in html
    assert "<b>0</b>" not in html


def test_many_accounts_are_counted_by_their_epsilon(drawn):
    certificate, _ = drawn("samples")
    many = [account for account in certificate.accounts for _ in range(MOST_LISTED)]
    html = page(certificate.model_copy(update={"accounts": many}), "00")
    assert f"{len(many)} accounts" in html
    assert "client-00000" not in html


def test_the_kinds_of_release_that_were_made_most_often_come_first() -> None:
    def account(*releases: tuple[str, int]) -> Any:
        return SimpleNamespace(
            releases=[SimpleNamespace(kind=kind, count=count) for kind, count in releases],
            other_runs=0,
        )

    html = _releases([account(("rare", 1), ("usual", 40)), account(("usual", 30), ("some", 7))])
    assert html.index("usual") < html.index("some") < html.index("rare")
    assert "40 ×" in html
    assert "in 2 of 2 accounts" in html


class TestPage:
    @pytest.mark.parametrize(("count", "more"), [(5, 0), (6, 0), (7, 1), (9, 3)])
    def test_six_kinds_of_releases_are_listed(self, count: int, more: int) -> None:
        kinds = [
            SimpleNamespace(kind=f"kind {number}", count=count - number) for number in range(count)
        ]
        drawn = printed_page._releases([SimpleNamespace(releases=kinds, other_runs=0)])  # type: ignore[list-item]
        assert sum(f"kind {number}<" in drawn for number in range(count)) == min(count, 6)
        assert ("more kinds" in drawn, f"and {more} more kinds" in drawn) == (more > 0, more > 0)

    @pytest.mark.parametrize(("count", "named"), [(1, True), (30, True), (31, False)])
    def test_up_to_thirty_accounts_are_named(self, count: int, named: bool) -> None:
        accounts = [
            account(name=f"client-{number}", ledger=f"client-{number}.sqlite")
            for number in range(count)
        ]
        assert ("client-0" in printed_page._accounts(certificate(accounts=accounts))) is named
