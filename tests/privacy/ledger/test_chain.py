"""A ledger whose rows were changed, removed or added is refused when it is opened, and says which
row it was.
"""

from __future__ import annotations

import shutil
import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.errors import DpflError
from dpfl.privacy import BudgetRefusal, Ledger, Limit
from dpfl.privacy.accounting.events import ADD_REMOVE
from dpfl.privacy.ledger.chain import COLUMNS
from dpfl.privacy.ledger.database import _guards
from tests.conftest import PATIENCE
from tests.privacy.exact import poisson
from tests.privacy.forging import unguarded
from tests.privacy.workers import EVENT, open_ledger

OTHER = poisson(0.1, 3.0)
LAST = {"account": 1, "holdings": 1, "limits": 2, "runs": 2, "events": 2, "plans": 2, "debits": 6}


def full(path: Path) -> Path:
    """A ledger with rows in every table, closed."""
    with closing(
        Ledger.open(path, "owner", "sample", ADD_REMOVE, Limit(50, 1e-5), data="of the owner")
    ) as ledger:
        for run, event in (("one", EVENT), ("two", OTHER)):
            ledger.plan(run, event, 9)
            for number in range(3):
                ledger.debit(run, f"{run}/{number}", event, number + 1)
        ledger.set_limit(Limit(np.float64(40), 1e-5, "rdp"))
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return full(tmp_path_factory.mktemp("whole") / "owner.sqlite")


def edited(folder: Path, whole: Path, *statements: str) -> Path:
    """The ledger after somebody took its guards off, changed it, and put them on again."""
    path = folder / "owner.sqlite"
    shutil.copy(whole, path)
    with closing(unguarded(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.executescript("".join(_guards()))
    return path


def everything(path: Path) -> object:
    with closing(Ledger.read(path)) as ledger:
        return ledger.account, ledger.spending(), ledger.limit, ledger.plans(), ledger.debits()


def test_a_ledger_that_nobody_touched_is_whole(tmp_path: Path, whole: Path) -> None:
    path = edited(tmp_path, whole)
    assert everything(path)[1] == {EVENT: 6, OTHER: 6}
    with closing(sqlite3.connect(path)) as connection:
        assert {
            table: connection.execute(f"SELECT MAX(id) FROM {table}").fetchone()[0]
            for table in COLUMNS
        } == LAST


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_cell_that_is_changed_is_noticed_and_its_row_named(
    tmp_path_factory: pytest.TempPathFactory, whole: Path, data: st.DataObject
) -> None:
    table = data.draw(st.sampled_from(sorted(COLUMNS)))
    row = data.draw(st.integers(1, LAST[table]))
    column = data.draw(st.sampled_from([*COLUMNS[table], "link", "seal"]))
    value = data.draw(
        st.one_of(
            st.integers(1, 99), st.floats(0.1, 9), st.text("abc", max_size=3), st.binary(max_size=3)
        )
    )
    path = tmp_path_factory.mktemp("cell") / "owner.sqlite"
    shutil.copy(whole, path)
    with closing(unguarded(path)) as connection:
        before = connection.execute(f"SELECT {column} FROM {table} WHERE id = {row}").fetchone()
        try:
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE id = {row}", (value,))
        except sqlite3.IntegrityError:
            return
        same = (
            connection.execute(f"SELECT {column} FROM {table} WHERE id = {row}").fetchone()
            == before
        )
        connection.executescript("".join(_guards()))
    if same:
        return
    with pytest.raises(
        DpflError,
        match=r"row \d+ of \w+ is" if column == "link" else rf"row {row} of {table} is not as",
    ):
        Ledger.read(path)


@pytest.mark.parametrize("table", COLUMNS)
def test_rows_that_are_removed_are_missed_the_last_ones_too(
    tmp_path: Path, whole: Path, table: str
) -> None:
    for row in range(1, LAST[table] + 1):
        path = edited(tmp_path, whole, f"DELETE FROM {table} WHERE id = {row}")
        with pytest.raises(DpflError, match=r"is missing|are missing"):
            Ledger.existing(path)


def test_rows_of_another_number_or_added_at_the_end_are_noticed(
    tmp_path: Path, whole: Path
) -> None:
    for change in (
        "UPDATE debits SET id = 70 WHERE id = 6",
        "UPDATE sqlite_sequence SET seq = 5 WHERE name = 'debits'",
        "DELETE FROM sqlite_sequence WHERE name = 'runs'",
        "INSERT INTO debits SELECT 7, run, 'new', event, count, at, link + 1, seal FROM debits "
        "WHERE id = 6",
        "INSERT INTO limits SELECT 3, 900, delta, accountant, at, link, seal FROM limits WHERE id "
        "= 2",
        "INSERT INTO account SELECT 2, owner, unit, neighbours, salt, 15, seal FROM account",
    ):
        with pytest.raises(DpflError, match="is damaged"):
            Ledger.read(edited(tmp_path, whole, change))


def test_a_ledger_without_its_guards_is_refused(tmp_path: Path, whole: Path) -> None:
    path = edited(tmp_path, whole)
    with closing(unguarded(path)):
        pass
    with pytest.raises(DpflError, match="what guards them"):
        Ledger.read(path)


@given(place=st.floats(0, 1, exclude_max=True), mask=st.integers(1, 255))
@settings(max_examples=150, deadline=None)
def test_a_byte_that_flips_anywhere_in_the_file_is_noticed_or_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, whole: Path, place: float, mask: int
) -> None:
    folder = tmp_path_factory.mktemp("byte")
    path, flipped = folder / "owner.sqlite", bytearray(whole.read_bytes())
    shutil.copy(whole, path)
    truth = everything(path)
    flipped[int(place * len(flipped))] ^= mask
    path.write_bytes(flipped)
    with suppress(DpflError):
        assert everything(path) == truth


def test_bits_that_flip_in_the_rows_themselves_are_noticed(tmp_path: Path, whole: Path) -> None:
    path, content = tmp_path / "owner.sqlite", whole.read_bytes()
    for word in (b"two/1", b"one/0", b"owner", b"sample", b"add/remove", b"rdp"):
        at = content.rindex(word)
        path.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
        with pytest.raises(DpflError, match="is damaged"):
            Ledger.read(path)


def test_a_ledger_of_an_earlier_version_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "owner.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE TABLE account (owner, unit); CREATE TABLE debits (run, release, event, count, "
            "at);"
        )
    with pytest.raises(DpflError, match=r"another version of dpfl.*was spent"):
        open_ledger(path)


# Whose it is, what it counts, and what was planned


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("neighbour", "sample", ADD_REMOVE), "belongs to owner, not to neighbour"),
        (
            ("owner", "client", ADD_REMOVE),
            r"for one sample .* and not for one client .*privacy\.ledger",
        ),
        (("owner", "sample", "replace one"), "add/remove one.* and not for .*replace one"),
    ],
)
def test_a_ledger_of_another_owner_unit_or_neighbours_is_refused(
    tmp_path: Path, asked: tuple[str, str, str], said: str
) -> None:
    path = tmp_path / "owner.sqlite"
    open_ledger(path).close()
    with pytest.raises(DpflError, match=said):
        Ledger.open(path, *asked)


def bound(path: Path, data: str) -> Ledger:
    return Ledger.open(path, "owner", "sample", ADD_REMOVE, data=data)


def test_the_first_debit_binds_a_ledger_to_its_data(tmp_path: Path) -> None:
    path = tmp_path / "owner.sqlite"
    bound(path, "never debited").close()
    late = bound(path, "too late")
    with closing(bound(path, "mine")) as ledger:
        ledger.debit("run", "a", EVENT, 1)
        ledger.debit("run", "b", EVENT, 1)
    with pytest.raises(DpflError, match="counts other data"):
        late.debit("run", "c", EVENT, 1)
    with pytest.raises(DpflError, match=r"counts other data.*data\.seed.*privacy\.ledger"):
        bound(path, "another's")
    with (
        closing(Ledger.existing(path)) as ledger,
        pytest.raises(DpflError, match="counts other data"),
    ):
        ledger.debit("run", "d", EVENT, 1)
    with closing(bound(path, "mine")) as ledger:
        assert ledger.spending() == {EVENT: 2}
        ledger.debit("run", "e", EVENT, 1)
    late.close()


def test_two_ledgers_of_the_same_data_keep_different_marks_and_never_the_digest(
    tmp_path: Path,
) -> None:
    marks = set()
    for name in ("one", "two"):
        with closing(bound(tmp_path / f"{name}.sqlite", "digest")) as ledger:
            ledger.debit("run", "a", EVENT, 1)
        with closing(sqlite3.connect(tmp_path / f"{name}.sqlite")) as connection:
            marks.add(connection.execute("SELECT mark FROM holdings").fetchone()[0])
        assert b"digest" not in (tmp_path / f"{name}.sqlite").read_bytes()
    assert len(marks) == 2


def test_a_plan_is_written_once_a_run_and_event_and_never_changed(tmp_path: Path) -> None:
    path = tmp_path / "owner.sqlite"
    with closing(open_ledger(path)) as ledger:
        ledger.plan("one", EVENT, 100)
        ledger.plan("one", EVENT, 100)
        ledger.plan("one", OTHER, 1)
        ledger.plan("two", EVENT, np.int64(7))
        with pytest.raises(BudgetRefusal, match="another plan of this run: 100 releases, not 101"):
            ledger.plan("one", EVENT, 101)
        ledger.debit("one", "a", EVENT, 3)
        assert ledger.spending() == {EVENT: 3}
        assert [ledger.epoch("one"), ledger.epoch("two")] == [0, 1]
    with closing(Ledger.read(path)) as ledger:
        assert ledger.plans() == {"one": {EVENT: 100, OTHER: 1}, "two": {EVENT: 7}}


def test_runs_that_plan_and_debit_at_once_keep_one_chain_and_epochs_of_their_own(
    tmp_path: Path,
) -> None:
    path, epochs = tmp_path / "owner.sqlite", list[int]()
    open_ledger(path).close()

    def use(run: str) -> None:
        with closing(open_ledger(path)) as ledger:
            epochs.append(ledger.epoch(run))
            ledger.plan(run, EVENT, 20)
            for number in range(20):
                ledger.debit(run, f"{run}/{number}", EVENT, 1)

    runs = [threading.Thread(target=use, args=(f"run {number}",)) for number in range(4)]
    for run in runs:
        run.start()
    for run in runs:
        run.join(PATIENCE)
    with closing(Ledger.read(path)) as ledger:
        assert sorted(epochs) == [0, 1, 2, 3]
        assert ledger.spending() == {EVENT: 80}
        assert ledger.plans() == {f"run {number}": {EVENT: 20} for number in range(4)}
