"""What a node writes down of runs and orders, asked of the file itself; and rules of tasks that
only sums can break.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpfl.node.statement import statement
from dpfl.node.storage import task_log
from dpfl.node.storage.task_log import RunRecord, TaskLog, TaskRecord
from dpfl.privacy import Limit
from dpfl.privacy.accounting.events import encode, gaussian
from dpfl.privacy.ledger.chain import ChainTail
from dpfl.protocol.proposal import in_order, proposal_from_words
from dpfl.refusals import ProtocolError
from tests.node.loopback import (
    EVENT,
    PROPOSAL,
    RUN,
    Asked,
    ask,
    join,
    new_node,
    round_of,
    work,
)
from tests.node.test_statement import KEY
from tests.privacy.workers import open_ledger

RUN_OF_B = RunRecord("owner", {"words": 1}, 60)


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[TaskLog]:
    opened = TaskLog(tmp_path)
    opened.join("run", RUN_OF_B)
    yield opened
    opened.close()


def order(name: str = "0/train", round: int = 0, **changes: Any) -> TaskRecord:
    return replace(TaskRecord("run", name, f"letter of {name}", round, EVENT, 2), **changes)


def refused(call: Any, *given: Any) -> str:
    with pytest.raises(ProtocolError) as bad:
        call(*given)
    return str(bad.value.reason)


class TestOrders:
    def test_releases_of_a_run_are_counted_by_their_event_each_order_once(
        self, orders: TaskLog
    ) -> None:
        for name in ("a", "b"):
            orders.begin(order(name))
        orders.begin(order("b"))
        orders.begin(order("c", event=gaussian(3.0), count=5))
        orders.begin(order("d", event=None, count=0))
        assert orders.count_releases("run", EVENT, "") == 4
        assert orders.count_releases("run", EVENT, "a") == 2
        assert orders.count_releases("run", gaussian(3.0), "") == 5
        assert orders.count_releases("another", EVENT, "") == 0

    def test_an_order_is_begun_three_times_at_most(self, orders: TaskLog) -> None:
        for _ in range(3):
            orders.begin(order())
        assert refused(orders.begin, order()) == "too-many-attempts"

    def test_an_order_that_was_taken_back_counts_for_nothing(self, orders: TaskLog) -> None:
        orders.begin(order("a"))
        orders.take_back(order("a"))
        assert orders.count_releases("run", EVENT, "") == 0
        for _ in range(2):
            orders.begin(order("b"))
        orders.take_back(order("b"))
        assert orders.count_releases("run", EVENT, "") == 2
        for _ in range(2):
            orders.begin(order("b"))
        assert refused(orders.begin, order("b")) == "too-many-attempts"

    def test_rounds_do_not_go_back_and_replies_of_older_ones_are_gone(
        self, orders: TaskLog
    ) -> None:
        orders.begin(order("a", round=1))
        orders.keep(order("a", round=1), b"first")
        assert orders.reply(order("a", round=1)) == b"first"
        orders.begin(order("b", round=1))
        assert orders.reply(order("a", round=1)) == b"first"
        orders.begin(order("c", round=2))
        assert orders.reply(order("a", round=1)) is None
        assert refused(orders.begin, order("d", round=1)) == "order-past"

    def test_replies_that_are_kept_are_their_owner_s_alone(
        self, orders: TaskLog, tmp_path: Path
    ) -> None:
        orders.begin(order())
        orders.keep(order(), b"reply")
        (reply,) = (tmp_path / "replies").iterdir()
        assert stat.S_IMODE(reply.stat().st_mode) == 0o600
        assert stat.S_IMODE((tmp_path / "replies").stat().st_mode) == 0o700

    def test_another_letter_for_an_order_is_refused(self, orders: TaskLog) -> None:
        orders.begin(order())
        assert refused(orders.reply, order(message_digest="another")) == "order-changed"

    def test_sixteen_replies_are_kept_and_an_order_whose_reply_was_dropped_is_not_done_again(
        self, orders: TaskLog
    ) -> None:
        names = [f"{number:02d}" for number in range(18)]
        for name in names:
            orders.begin(order(name))
            orders.keep(order(name), name.encode())
        kept = [name for name in names if orders.reply(order(name)) is not None]
        assert kept == names[2:]
        for name in names[:2]:
            assert refused(orders.begin, order(name)) == "too-many-attempts"
        orders.begin(order(names[2]))

    def test_of_runs_that_never_worked_the_latest_256_are_known(
        self, orders: TaskLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert task_log.MOST_WAITING == 256
        monkeypatch.setattr(task_log, "MOST_WAITING", 5)
        orders.begin(order())
        for number in range(6):
            orders.join(f"waits {number}", RUN_OF_B)
        assert orders.run("waits 0") is None
        assert orders.run("waits 1") == RUN_OF_B
        assert orders.run("run") == RUN_OF_B

    def test_the_end_of_the_chain_is_remembered(self, orders: TaskLog) -> None:
        assert orders.ledger_tail == ChainTail()
        for tail in (ChainTail(3, "ab"), ChainTail(7, "cd")):
            orders.see(tail)
            assert orders.ledger_tail == tail


class TestRuns:
    @pytest.fixture
    def node(self, tmp_path: Path) -> Iterator[Asked]:
        made = Asked.open(new_node(tmp_path / "b"))
        yield made
        made.service.close()

    def test_a_run_whose_orders_are_lost_is_over(self, tmp_path: Path) -> None:
        policy = new_node(tmp_path / "b")
        first = Asked.open(policy)
        assert first(join()).header["kind"] == "joined"
        assert first(work()).header["kind"] == "reply"
        assert first(join()).header["kind"] == "joined", "a run that is known is joined again"
        first.service.close()
        first.service._state.log._path.unlink()
        again = Asked.open(policy)
        assert again.refused(join()) == "wrong-run"
        assert again(join(run="fedcba9876543210")).header["kind"] == "joined"
        again.service.close()

    def test_two_runs_in_turn_are_each_worked_for_by_their_own_words(self, node: Asked) -> None:
        other = "fedcba9876543210"
        node(join())
        node(join(run=other))
        for number in range(2):
            for run in (RUN, other):
                assert node(work(round_of(number), run=run)).header["kind"] == "reply"
        runs = [run for run, *_ in node.rows()[0]]
        assert runs == [RUN, other, RUN, other]

    def test_a_statement_names_the_sums_that_releases_were_in(self, tmp_path: Path) -> None:
        """Of all that was released, and of one run; with whole noise it holds against everybody."""
        limit = Limit(50.0, 1e-5, "rdp")
        with closing(open_ledger(tmp_path / "c.sqlite")) as ledger:
            ledger.debit("one", "one/shared 5-1/a", EVENT, 1)
            ledger.debit("two", "two/shared 4-2/b", EVENT, 1)
            ledger.debit("three", "three/c", EVENT, 1)
            said = {
                run: statement(ledger, limit, run, KEY)["statement"]
                for run in ("one", "two", "three")
            }
        assert (
            "up to 1 clients together, who see sums over at least 5 clients"
            in said["one"]["run"]["adversary"]
        )
        assert (
            "up to 2 clients together, who see sums over at least 4 clients"
            in said["two"]["run"]["adversary"]
        )
        assert "who may see all that left this node" in said["three"]["run"]["adversary"]
        assert all(
            "up to 1 clients together, who see sums over at least 4" in one["adversary"]
            for one in said.values()
        )

    def test_a_node_says_nothing_of_runs_that_it_did_not_join(self, node: Asked) -> None:
        assert node.refused(ask("ask-statement")) == "not-joined"


class TestProposals:
    @pytest.mark.parametrize(
        "events",
        [
            [["words", 1]],
            [[encode(EVENT), 0]],
            [[encode(EVENT)]],
            [[encode(EVENT), 1, 1]],
            [encode(EVENT)],
            [[1, 1]],
            [[encode(EVENT) + " " * 1000, 1]],
            [[encode(EVENT), 1]] * 33,
            [[encode(EVENT), 1.0]],
            "events",
            [[encode(EVENT), True]],
        ],
    )
    def test_events_that_are_none_are_refused(self, events: Any) -> None:
        words = PROPOSAL.to_words()
        proposal_from_words({**words, "events": [[encode(EVENT), 1]] * 32})
        assert refused(proposal_from_words, {**words, "events": events}) == "bad-words"

    def test_events_come_in_the_order_of_rounds_and_alike_ones_together(self) -> None:
        one, two, before = gaussian(1.0), gaussian(2.0), gaussian(9.0)

        def spending(releases: int) -> dict[Any, int]:
            """Two of the first kind, two of the second, then the first again."""
            return {one: min(releases, 2) + max(0, releases - 4), two: min(max(0, releases - 2), 2)}

        found = in_order({before: 1}, spending, 6, each=1)
        assert found == ((before, 1), (one, 2), (two, 2), (one, 2))
        assert in_order({before: 1, two: 3}, lambda count: {one: count}, 6) == (
            (before, 1),
            (two, 3),
            (one, 6),
        )
