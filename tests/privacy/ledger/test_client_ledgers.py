"""A folder of ledgers before a run begins: what is lost, of another kind, or of somebody else's
data is a question.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from dpfl.errors import DpflError
from dpfl.privacy import Ledger
from dpfl.privacy.accounting.events import ADD_REMOVE, REPLACE
from dpfl.privacy.ledger.client_ledgers import (
    FEDERATION,
    METRICS,
    ClientLedgers,
    ledger_files,
    ledger_path,
    list_names,
)
from tests.privacy.workers import EVENT

DATA = ("digest of a", "digest of b", "digest of c")


def ledgers(
    folder: Path, *names: str, unit: str = "sample", neighbours: str = ADD_REMOVE, **more: object
) -> ClientLedgers:
    return ClientLedgers(folder, names, unit, neighbours, **more)  # type: ignore[arg-type]


def spend(of: ClientLedgers, number: int = 0, count: int = 1) -> None:
    with closing(of.open(number)) as ledger:
        ledger.debit("run", f"release {number}", EVENT, count)


def test_a_ledger_that_is_missing_among_used_ones_is_refused(tmp_path: Path):
    some = ledgers(tmp_path, "a", "b")
    some.check()
    spend(some, 0)
    with pytest.raises(DpflError, match="There is no ledger of b"):
        some.check()
    some.open(1).close()
    some.check()


def test_unused_ledgers_ask_for_no_others(tmp_path: Path):
    some = ledgers(tmp_path, "a", "b")
    some.open(0).close()
    some.check()


def test_the_federation_s_and_the_clients_ledgers_do_not_mix(tmp_path: Path):
    spend(ledgers(tmp_path / "clients", "a"))
    spend(ledgers(tmp_path / "federation", FEDERATION))
    with pytest.raises(DpflError, match="is for one client"):
        ledgers(tmp_path / "clients", FEDERATION).check()
    with pytest.raises(DpflError, match="is for the federation"):
        ledgers(tmp_path / "federation", "a").check()


@pytest.mark.parametrize("other", [{"unit": "client"}, {"neighbours": REPLACE}])
def test_ledgers_of_another_kind_are_refused(tmp_path: Path, other: dict[str, str]):
    spend(ledgers(tmp_path, "a"))
    with pytest.raises(DpflError):
        ledgers(tmp_path, "a", **other).check()


def test_a_ledger_counts_the_data_that_it_was_bound_to_and_no_other(tmp_path: Path):
    some = ledgers(tmp_path, "a", data=DATA[:1])
    spend(some)
    with closing(Ledger.read(ledger_path(tmp_path, "a"))) as ledger:
        assert ledger.counts_data("digest of a")
        assert not ledger.counts_data("digest of b")
        assert not ledger.counts_data("")


def test_data_that_another_ledger_counts_is_not_begun_anew_nor_made_public(tmp_path: Path):
    spend(ledgers(tmp_path, "a", data=DATA[:1]))
    ledgers(tmp_path, "a", data=DATA[:1]).check()
    with pytest.raises(DpflError, match="counts the data of new"):
        ledgers(tmp_path, "new", data=DATA[:1]).check()
    with pytest.raises(DpflError, match="counts the data of a public client"):
        ledgers(tmp_path, "a", data=DATA[:1], public=DATA[:1]).check()
    ledgers(tmp_path, "a", data=DATA[:1], public=DATA[1:]).check()


def test_what_was_spent_is_told_by_owner(tmp_path: Path):
    some = ledgers(tmp_path, "a", "b")
    spend(some, 1, count=7)
    assert some.spending() == [{}, {EVENT: 7}]
    with closing(some.read(1)) as ledger:
        assert ledger.account.owner == "b"
    with pytest.raises(DpflError):
        ledgers(tmp_path, "a", "b", unit="client").read(1)


def test_a_sentence_lists_three_names_and_counts_the_rest():
    assert list_names(["a", "b", "c"]) == "a, b, c"
    assert list_names(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"


def test_the_metrics_of_a_run_are_no_ledger(tmp_path: Path):
    (tmp_path / "ledger").mkdir()
    for name in (METRICS, "b.sqlite", "a.sqlite", "ledger/c.sqlite", "a.txt"):
        (tmp_path / name).touch()
    assert [path.name for path in ledger_files(tmp_path)] == ["a.sqlite", "b.sqlite"]
    assert len(ledger_files(tmp_path, "**/*.sqlite")) == 3
