"""Runs one after another on ledgers that others spend."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpfl.algorithms import Algorithm
from dpfl.client.debits import ClientDebits
from dpfl.client.task import ClientTask
from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.privacy import Ledger, Limit, accountant
from dpfl.privacy.accounting.events import ADD_REMOVE
from dpfl.run.metrics import RoundRow
from tests.conftest import StopsAfter
from tests.run.small_runs import (
    CROWDED,
    EVENT,
    SOUND,
    Hook,
    Train,
    counts,
    spend_elsewhere,
)


@pytest.mark.parametrize("algorithm", [SOUND, CROWDED])
def test_a_second_run_on_a_ledger_that_is_spent_is_refused(
    train: Train, federation: Federation, crowd: Federation, algorithm: Algorithm, tmp_path: Path
) -> None:
    """Fault: accounts kept in memory, or a new accountant for each run."""
    data = crowd if algorithm.unit == "client" else federation
    epsilon = accountant("rdp").epsilon({algorithm.release.event(20): 6}, 1e-5) * (1 + 1e-9)
    options = {"epsilon": epsilon, "ledger": tmp_path / "ledgers", "accountant": "rdp"}
    first = train(data, algorithm, out="first", **options)
    assert first.stopped_by == "epsilon"
    before = counts(tmp_path / "ledgers")
    with pytest.raises(DpflError, match="no budget left"):
        train(data, algorithm, out="second", **options)
    assert counts(tmp_path / "ledgers") == before
    assert set(before) == {6}


@pytest.mark.parametrize("algorithm", [SOUND, CROWDED])
def test_a_second_run_on_one_ledger_gets_only_what_the_first_left(
    train: Train, federation: Federation, crowd: Federation, algorithm: Algorithm, tmp_path: Path
) -> None:
    data, per_round = (crowd, 1) if algorithm.unit == "client" else (federation, 3)
    epsilon = accountant("rdp").epsilon({algorithm.release.event(20): 7}, 1e-5) * (1 + 1e-9)
    options = {"epsilon": epsilon, "ledger": tmp_path / "ledgers", "accountant": "rdp"}
    first = train(data, algorithm, out="first", rounds=1, **options)
    second = train(data, algorithm, out="second", **options)
    assert second.stopped_by == "epsilon"
    assert set(counts(tmp_path / "ledgers")) == {7}
    assert first.privacy.proven < second.privacy.proven <= epsilon
    assert sum(row.steps if per_round == 3 else 1 for row in second.history) == 7 - per_round
    shown = [row.epsilon for row in second.history]
    assert shown[0] >= accountant("rdp").epsilon({algorithm.release.event(20): 2 * per_round}, 1e-5)


def test_two_runs_of_one_seed_on_one_ledger_differ(
    train: Train, federation: Federation, tmp_path: Path
) -> None:
    first = train(federation, SOUND, rounds=1, out="a", ledger=tmp_path / "ledgers")
    second = train(federation, SOUND, rounds=1, out="b", ledger=tmp_path / "ledgers")
    assert first.model_sha256 != second.model_sha256


def test_an_owner_with_a_smaller_budget_drops_out_and_the_others_go_on(
    train: Train, federation: Federation, tmp_path: Path
) -> None:
    """Fault: the budget enforced by the server instead of at the node; epsilon averaged over
    clients.
    """
    own = accountant("rdp").epsilon({EVENT: 4}, 1e-5) * (1 + 1e-9)
    Ledger.open(
        tmp_path / "ledgers" / "client-00002.sqlite",
        "client-00002",
        "sample",
        ADD_REMOVE,
        Limit(own, 1e-5, "rdp"),
    ).close()
    result = train(federation, SOUND, rounds=4, ledger=tmp_path / "ledgers", accountant="rdp")
    assert result.rounds == 4
    assert [row.steps for row in result.history] == [3, 1, 3, 3]
    assert counts(tmp_path / "ledgers") == [10, 10, 4, 10]
    assert (
        result.privacy.per_client["client-00002"] <= own < result.privacy.per_client["client-00000"]
    )
    assert result.privacy.proven == max(result.privacy.per_client.values())


def test_a_federation_whose_ledger_another_run_spends_meanwhile_stops_by_epsilon(
    train: Train, crowd: Federation, tmp_path: Path
) -> None:
    event = CROWDED.clients.event(20)
    epsilon = accountant("rdp").epsilon({event: 6}, 1e-5) * (1 + 1e-9)

    def spend(row: RoundRow) -> None:
        if row.round == 2:
            spend_elsewhere(tmp_path / "run" / "ledger" / "federation.sqlite", event, 3)

    result = train(crowd, CROWDED, epsilon=epsilon, accountant="rdp", progress=Hook(spend))
    assert result.stopped_by == "epsilon"
    assert result.rounds == 3
    assert result.privacy.proven <= epsilon


def test_a_client_whose_ledger_another_run_spends_meanwhile_refuses_and_the_round_goes_on(
    train: Train, federation: Federation, tmp_path: Path
) -> None:
    epsilon = accountant("rdp").epsilon({EVENT: 9}, 1e-5) * (1 + 1e-9)

    def spend(row: RoundRow) -> None:
        if row.round == 1:
            spend_elsewhere(tmp_path / "run" / "ledger" / "client-00001.sqlite", EVENT, 6)

    result = train(federation, SOUND, epsilon=epsilon, accountant="rdp", progress=Hook(spend))
    assert counts(result.folder / "ledger") == [9, 9, 9, 9]
    assert result.rounds == 3
    assert len(result.lost_replies) == 1
    assert "client 1" in result.lost_replies[0]
    assert result.privacy.proven <= epsilon


def test_a_run_in_which_a_client_refused_can_be_resumed(
    train: Train, federation: Federation, tmp_path: Path
) -> None:
    epsilon = accountant("rdp").epsilon({EVENT: 12}, 1e-5) * (1 + 1e-9)

    def spend_and_stop(row: RoundRow) -> None:
        if row.round == 1:
            spend_elsewhere(tmp_path / "run" / "ledger" / "client-00001.sqlite", EVENT, 9)
        if row.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(federation, SOUND, epsilon=epsilon, accountant="rdp", progress=Hook(spend_and_stop))
    result = train(federation, SOUND, epsilon=epsilon, accountant="rdp", resume=True)
    assert counts(result.folder / "ledger") == [12] * 4
    assert result.privacy.proven <= epsilon


def test_a_run_in_which_a_client_failed_before_it_paid_can_be_resumed(
    train: Train, federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: releases that the server gave up on were looked for in the client's ledger, and the
    run held for tampered with.
    """
    debit = ClientDebits.begin

    def broken(self: ClientDebits, task: ClientTask, *rest: Any) -> Callable[[], None]:
        if (task.client, task.round) == (1, 1):
            raise OSError("no disk")
        return debit(self, task, *rest)

    monkeypatch.setattr(ClientDebits, "begin", broken)
    with pytest.raises(KeyboardInterrupt):
        train(federation, SOUND, rounds=4, progress=StopsAfter(3))
    result = train(federation, SOUND, rounds=4, resume=True)
    assert counts(result.folder / "ledger") == [12, 9, 12, 12]
