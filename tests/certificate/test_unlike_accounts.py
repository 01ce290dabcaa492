"""Accounts that spent differently: what stands for all of them is the largest, and everything else
is said as it is.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dpfl.certificate.contents import (
    _headline_metric,
    certify,
    guarantee_section,
    headline,
    neighbours,
    spread,
)
from dpfl.certificate.sections import AccountSection, Certificate, ReleaseSection
from dpfl.privacy.accounting.events import ADD_REMOVE, REPLACE, encode, gaussian
from dpfl.privacy.mechanisms.sampling import FixedSize, Poisson

POISSON, FIXED, PLAIN = Poisson(0.1).event(1.0, 50), FixedSize(5).event(1.0, 50), gaussian(2.0)


def account(name: str, proven: Any, *events: Any) -> AccountSection:
    releases = [ReleaseSection(event=encode(event), kind="words", count=1) for event in events]
    return AccountSection(
        name=name,
        ledger=f"{name}.sqlite",
        proven=proven,
        releases=releases,
        debits=1,
        other_runs=0,
        seal="00",
    )


def test_the_largest_epsilon_of_any_account_is_proven():
    """Fault: all tests had accounts that spent alike."""
    some = [account("a", 1.5), account("b", 3.0), account("c", 0.5), account("d", 2.0)]
    assert spread(some) == {"proven": 3.0, "median": 1.75, "lowest": 0.5}
    some.append(account("e", "unbounded"))
    assert spread(some) == {"proven": "unbounded", "median": 2.0, "lowest": 0.5}


def test_neighbours_follow_how_units_are_drawn():
    assert neighbours([account("a", 1.0, POISSON), account("b", 1.0, PLAIN)]) == (ADD_REMOVE,)
    assert neighbours([account("a", 1.0, FIXED)]) == (REPLACE,)
    assert neighbours([account("a", 1.0, PLAIN)]) == (ADD_REMOVE, REPLACE)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"headline": "accuracy", "metrics": {"accuracy": 0.5}}, "on the test set"),
        (
            {"headline": "accuracy", "metrics": {"accuracy": 0.5}, "noisy": "on held-out rows"},
            "on held-out rows",
        ),
        ({"headline": "accuracy", "metrics": {"accuracy": None}}, None),
        ({"headline": "accuracy", "metrics": {}}, None),
        ({"headline": "accuracy", "metrics": "words"}, None),
        ({"headline": ["accuracy"], "metrics": {"accuracy": 0.5}}, None),
        ({"headline": None, "metrics": {None: 0.5}}, None),
        ({}, None),
    ],
)
def test_what_a_run_measured_is_said_where_its_file_says_it(
    result: dict[str, Any], said: str | None
):
    found = _headline_metric(result)
    assert found is None if said is None else (found or "").endswith(said)


def certificate(proven: Any, claim: float | None, entropy: str = "system", **changes: Any) -> Any:
    guarantee = SimpleNamespace(
        proven=proven,
        unaccounted=[],
        delta=1e-5,
        unit="sample",
        neighbours=ADD_REMOVE,
        adversary="the server",
        accountant="pld",
        **changes,
    )
    return SimpleNamespace(
        guarantee=guarantee,
        claimed=SimpleNamespace(epsilon=claim, text="the paper"),
        trained=SimpleNamespace(entropy=entropy),
    )


def test_the_headline_warns_of_a_claim_only_where_it_is_lower():
    for claim, warns in ((1.0, True), (2.0, False), (3.0, False), (None, False)):
        verdict = headline(certificate(2.0, claim))
        assert verdict.level == "proven"
        assert ("that is no guarantee" in verdict.sentence) == warns
    assert headline(certificate(2.0, 1.0, entropy="keyed")).level == "condition"
    assert headline(certificate("unbounded", 1.0)).level == "nothing"


def test_the_headline_names_what_left_unprotected():
    leaking = certificate("unbounded", None)
    assert "protection: a release without noise." in headline(leaking).sentence
    leaking.guarantee.unaccounted = ["raw values", "a size"]
    assert "protection: raw values; a size." in headline(leaking).sentence


@pytest.mark.parametrize(("used", "stated"), [(None, 0.0), (0.0, 0.0), (0.5, 0.5)])
def test_where_nothing_was_used_the_certificate_says_0(used: float | None, stated: float):
    words = {
        "unit": "sample",
        "neighbours": ADD_REMOVE,
        "delta": 1e-5,
        "adversary": "",
        "accountant": "pld",
        "unaccounted": (),
        "assumptions": (),
        "warnings": (),
    }
    found: Any = SimpleNamespace(statement=SimpleNamespace(used=used, to_dict=lambda: words))
    assert guarantee_section(found, [account("a", 1.5)]).used == stated


def test_what_was_used_stands_in_the_certificate_as_the_statement_has_it(run_of, key):
    made = Certificate.model_validate(certify(run_of("samples"), key)["certificate"])
    assert made.guarantee.used == made.guarantee.proven > 0
