"""The terms that a run counts by: its limit, its owners, and the delta that it should have."""

from __future__ import annotations

import pytest

import dpfl
from dpfl.algorithms import fedavg
from dpfl.codec import encode
from dpfl.privacy import Budget, Limit
from dpfl.privacy.ledger.client_ledgers import FEDERATION
from dpfl.run.accounting.accounting_terms import AccountingTerms
from dpfl.run.records.algorithm_record import describe
from tests.run.small_runs import CROWDED, SOUND

BUDGET = Budget(epsilon=2.0, rounds=5)


def terms(algorithm: dpfl.algorithms.Algorithm, budget: Budget = BUDGET) -> AccountingTerms:
    return AccountingTerms(algorithm, budget, "rdp", (300, 200))


def test_every_client_pays_for_its_steps_and_the_federation_for_a_round() -> None:
    steps, rounds, without = (terms(one) for one in (SOUND, CROWDED, fedavg(tau=1)))
    assert steps.owners == ("client-00000", "client-00001")
    assert (steps.population, steps.horizon) == (0, 15), "five rounds with three steps each"
    assert rounds.owners == (FEDERATION,)
    assert (rounds.population, rounds.horizon) == (2, 5)
    assert without.owners == ()
    assert without.limit is None


def test_only_a_budget_of_epsilon_is_a_limit() -> None:
    assert terms(SOUND).limit == Limit(2.0, 1e-5, "rdp")
    assert terms(SOUND, Budget(rounds=5)).limit is None
    assert terms(SOUND, Budget(epsilon=2.0)).horizon == 0, "no round ends the run"


@pytest.mark.parametrize(("delta", "warned"), [(1 / 301, False), (1 / 300, True)])
def test_a_delta_of_one_in_n_brings_a_warning(delta: float, warned: bool) -> None:
    """It is compared with the largest client, and with the clients where they are the unit."""
    large = terms(SOUND, Budget(rounds=1, delta=delta)).warnings
    assert any("300 (the largest client's samples)" in line for line in large) == warned
    assert any(
        "1/2 (clients)" in line for line in terms(CROWDED, Budget(rounds=1, delta=0.5)).warnings
    )


def test_sizes_are_recorded_where_clients_pay_and_are_unequal() -> None:
    assert terms(SOUND).recorded_sizes == [300, 200]
    assert AccountingTerms(SOUND, BUDGET, "rdp", (300, 300)).recorded_sizes is None
    assert terms(CROWDED).recorded_sizes is None, "the federation pays, whatever its clients have"


def test_a_certificate_counts_by_the_terms_of_the_record() -> None:
    resolved = {
        "budget": encode(BUDGET),
        "accountant": "rdp",
        "largest": 300,
        "clients": 2,
        "algorithm": describe(SOUND),
    }
    recorded = AccountingTerms.from_record({"resolved": resolved}, SOUND)
    assert recorded.limit == terms(SOUND).limit
    assert recorded.declared_sizes == (300, 300), (
        "a record without sizes: of equal ones, or an old one"
    )
    listed = AccountingTerms.from_record({"resolved": resolved | {"declared": [300, 200]}}, SOUND)
    assert listed.declared_sizes == terms(SOUND).declared_sizes
    with pytest.raises(dpfl.DpflError, match="holds no budget"):
        AccountingTerms.from_record({"resolved": resolved | {"budget": describe(SOUND)}}, SOUND)
