"""How many releases of a run fit beside what was spent."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpfl.node.checks.budget_checks import affordable_releases, is_affordable
from dpfl.privacy import Ledger, Limit, accountant
from dpfl.privacy.ledger.limit import SubLimit
from tests.node.loopback import (
    EVENT,
    PROPOSAL,
    ROUNDS,
)
from tests.privacy.exact import poisson
from tests.privacy.workers import open_ledger


class TestRoom:
    """How many releases of a run fit beside what was spent, with events of one kind and of
    several.
    """

    SMALL = poisson(0.1, 3.0)

    def cost(self, spent: dict[Any, int], delta: float = 1e-5) -> float:
        return float(accountant("rdp").epsilon(spent, delta))

    @pytest.fixture
    def ledger(self, tmp_path: Path):
        with closing(open_ledger(tmp_path / "b.sqlite")) as opened:
            yield opened

    @pytest.mark.parametrize("epsilon", [1.0, 3.0, 1e5])
    def test_of_one_kind(self, ledger: Ledger, epsilon: float) -> None:
        ledger.debit("before", "a", self.SMALL, 3)
        left = affordable_releases(ledger, "run", PROPOSAL, Limit(epsilon, 1e-5, "rdp"), ())
        assert left <= ROUNDS * 2
        if left:
            assert self.cost({self.SMALL: 3, EVENT: left}) <= epsilon
        if left < ROUNDS * 2:
            assert self.cost({self.SMALL: 3, EVENT: left + 1}) > epsilon

    @pytest.mark.parametrize("epsilon", [0.7, 1.0, 2.0, 3.0, 1e5])
    def test_of_two_kinds_in_their_order(self, ledger: Ledger, epsilon: float) -> None:
        ledger.debit("before", "a", self.SMALL, 3)
        proposal = replace(PROPOSAL, events=((self.SMALL, 4), (EVENT, 6)))
        left = affordable_releases(ledger, "run", proposal, Limit(epsilon, 1e-5, "rdp"), ())
        costs = [self.cost({self.SMALL: 3 + min(n, 4), EVENT: max(0, n - 4)}) for n in range(11)]
        assert left == max((n for n in range(11) if costs[n] <= epsilon), default=0)

    def test_what_the_run_itself_spent_is_not_counted_against_it_twice(
        self, ledger: Ledger
    ) -> None:
        ledger.debit("run", "a", EVENT, 4)
        limit = Limit(self.cost({EVENT: ROUNDS * 2}) * (1 + 1e-9), 1e-5, "rdp")
        assert affordable_releases(ledger, "run", PROPOSAL, limit, ()) == ROUNDS * 2
        assert affordable_releases(ledger, "another", PROPOSAL, limit, ()) == ROUNDS * 2 - 4

    def test_shares_count_beside_the_limit_in_all(self, ledger: Ledger) -> None:
        wide, three = (
            Limit(1e5, 1e-5, "rdp"),
            Limit(self.cost({EVENT: 3}) * (1 + 1e-9), 1e-5, "rdp"),
        )
        ledger.debit("before", "a", EVENT, 1)
        assert (
            affordable_releases(ledger, "run", PROPOSAL, wide, (SubLimit(three, run="run"),)) == 3
        )
        assert affordable_releases(ledger, "run", PROPOSAL, wide, (SubLimit(three, days=365),)) == 2
        assert is_affordable(ledger, EVENT, 2, wide, (SubLimit(three, days=365),), 0)
        assert not is_affordable(ledger, EVENT, 3, wide, (SubLimit(three, days=365),), 0)
        assert not is_affordable(
            ledger, EVENT, 1, Limit(self.cost({EVENT: 1}) * (1 + 1e-9), 1e-5, "rdp"), (), 5
        )
