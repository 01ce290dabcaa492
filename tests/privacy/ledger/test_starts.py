"""Starts of a node in a ledger's chain: which chains were reconciled, what two copies share, by
hand.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest

from dpfl.privacy.ledger.chain import ChainTail
from dpfl.privacy.ledger.starts import (
    ANCHOR_DIGITS,
    NodeStart,
    anchors_row,
    common_rows,
    is_reconciled,
    new_start,
    read_starts,
    reconciliation_row,
    runs_before,
    spread_starts,
)

SEAL, OTHER = "a" * 64, "b" * 64
FIRST, SECOND, STRANGER = "1" * 16, "2" * 16, "3" * 16


@pytest.fixture(name="connection")
def _connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE runs (id INTEGER PRIMARY KEY, run TEXT, link INTEGER)")
    yield connection
    connection.close()


def write(connection: sqlite3.Connection, *rows: tuple[str, int]) -> None:
    connection.executemany("INSERT INTO runs (run, link) VALUES (?, ?)", rows)


class TestReconciled:
    """A chain counts as reconciled only by its own seal, or as an earlier part of one that was."""

    def test_a_chain_is_known_by_its_seal_and_no_other_is(self, connection):
        write(connection, ("a run", 2), (reconciliation_row(SEAL, []), 3))
        assert is_reconciled(connection, ChainTail(9, SEAL), FIRST, {})
        assert not is_reconciled(connection, ChainTail(9, OTHER), FIRST, {})

    def test_an_earlier_part_is_known_by_its_start_up_to_the_row_where_that_ended(self, connection):
        write(
            connection,
            (reconciliation_row(SEAL, [NodeStart(2, SECOND, 9), NodeStart(1, FIRST, 5)]), 3),
        )
        for start, rows, known in (
            (FIRST, 4, True),
            (FIRST, 5, True),
            (FIRST, 6, False),
            (SECOND, 8, True),
            (SECOND, 10, False),
        ):
            assert is_reconciled(connection, ChainTail(rows, OTHER), start, {}) == known
        assert not is_reconciled(connection, ChainTail(9, OTHER), SECOND, {}), (
            "the same row with another seal is another chain"
        )
        for rows in (0, 1, 5):
            assert not is_reconciled(connection, ChainTail(rows, OTHER), STRANGER, {})

    def test_an_earlier_part_is_known_by_its_anchors(self, connection):
        anchors = {4: "d" * ANCHOR_DIGITS, 7: "e" * ANCHOR_DIGITS}
        write(
            connection,
            (reconciliation_row(SEAL, [NodeStart(1, FIRST, 9)]), 3),
            (anchors_row(SEAL, anchors), 4),
        )
        own = {2: "f" * ANCHOR_DIGITS}
        assert is_reconciled(connection, ChainTail(7, "e" * 64), FIRST, own)
        assert not is_reconciled(connection, ChainTail(7, "d" * 64), FIRST, own)
        assert not is_reconciled(connection, ChainTail(6, "e" * 64), FIRST, own), (
            "no anchor shows this row"
        )

    def test_where_nothing_was_reconciled_nothing_is(self, connection):
        write(connection, ("a run", 2), (new_start(1), 3))
        assert not is_reconciled(connection, ChainTail(0, SEAL), FIRST, {})

    def test_the_second_of_two_is_found(self, connection):
        write(
            connection,
            (reconciliation_row(SEAL, []), 3),
            (reconciliation_row(OTHER, [NodeStart(1, FIRST, 5)]), 4),
        )
        assert is_reconciled(connection, ChainTail(9, OTHER), SECOND, {})
        assert is_reconciled(connection, ChainTail(4, "c" * 64), FIRST, {})


def test_a_start_ends_in_the_row_before_the_next(connection):
    names = [new_start(1), new_start(2)]
    write(
        connection,
        ("a run", 2),
        (names[0], 3),
        ("node/reconciled/x", 5),
        (names[1], 8),
        ("another run", 9),
    )
    starts = read_starts(connection, 12)
    assert [(start.boot, start.end) for start in starts] == [(2, 12), (1, 7)]
    assert [f"node/start/{start.boot}/{start.name}" for start in starts] == names[::-1]


def test_a_start_has_64_random_bits():
    names = {new_start(1).rsplit("/", 1)[1] for _ in range(100)}
    assert len(names) == 100
    assert {len(bytes.fromhex(name)) for name in names} == {8}


def test_runs_before_one_leave_starts_out(connection):
    write(connection, (new_start(1), 2), ("a", 3), (new_start(2), 4), ("b", 5), ("c", 6))
    assert [runs_before(connection, run) for run in "abc"] == [0, 1, 2]


def test_two_chains_share_rows_up_to_the_latest_start_of_both():
    one = [NodeStart(3, "c", 30), NodeStart(2, "b", 20), NodeStart(1, "a", 10)]
    assert common_rows(one, one) == 21
    assert (
        common_rows(one, [NodeStart(3, "x", 40), NodeStart(2, "b", 17), NodeStart(1, "a", 10)])
        == 11
    )
    assert common_rows(one, [NodeStart(2, "x", 40), NodeStart(1, "a", 25)]) == 1
    assert (
        common_rows(one, [NodeStart(1, "x", 5)])
        == common_rows(one, [])
        == common_rows([], one)
        == 0
    )


@pytest.mark.parametrize(
    ("count", "places"),
    [
        (0, []),
        (1, [0]),
        (2, [0, 1]),
        (3, [0, 1, 2]),
        (4, [0, 1, 2]),
        (5, [0, 1, 2, 4]),
        (9, [0, 1, 2, 4, 8]),
    ],
)
def test_starts_that_are_shown_lie_at_powers_of_two(count, places):
    starts = [NodeStart(count - place, str(place), count - place) for place in range(count)]
    assert [int(start.name) for start in spread_starts(starts)] == places
