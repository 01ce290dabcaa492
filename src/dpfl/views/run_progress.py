"""How far a run has come: its epsilon so far, the captions of its curves, and its accounts.

A page that watches a run asks again whenever the run moves on, so little is read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dpfl.errors import DpflError
from dpfl.privacy.figures import epsilon_text
from dpfl.privacy.statement_view import GuaranteeView
from dpfl.privacy.units import protects_nobody
from dpfl.run.metrics import LESS_IS_BETTER, query
from dpfl.run.outcome_view import metric_text
from dpfl.run.records.folder import METRICS, RunFolder
from dpfl.views.budget_view import BudgetView
from dpfl.views.run_summary import RunFacts
from dpfl.views.run_tables import LostReply

AccountLevel = Literal["good", "soft", "wrong"]
"""How a layout colours what an account does."""

NO_LIMIT = 10**8
"""More remaining releases than any run makes: the account has no limit."""

TIMES = {"finished": "at the end", "stopped": "when it was stopped"}
"""When the last value of a curve was measured, by the state of the run; otherwise "now"."""


@dataclass(frozen=True)
class LastValues:
    """The last value of each curve of a run; None where nothing was measured."""

    steps: int | None = None
    measured: float | None = None
    lowest: float | None = None
    highest: float | None = None
    loss: float | None = None
    epsilon: float | None = None

    @classmethod
    def read(cls, folder: RunFolder) -> LastValues:
        """Reads them from the metrics of a run.

        Args:
            folder: The folder of the run.

        Returns:
            The values; all None where there are no metrics or they cannot be read.
        """

        def last(column: str) -> str:
            condition = f"{column} < 9e999"  # neither NULL nor infinite
            return f"(SELECT {column} FROM rounds WHERE {condition} ORDER BY round DESC LIMIT 1)"

        metric = "coalesce(headline, accuracy)"
        columns = (
            last("steps"),
            last(metric),
            f"(SELECT min({metric}) FROM rounds)",
            f"(SELECT max({metric}) FROM rounds)",
            last("loss"),
            last("epsilon"),
        )

        def values(connection: sqlite3.Connection) -> list[LastValues]:
            return [cls(*row) for row in connection.execute(f"SELECT {', '.join(columns)}")]

        try:
            rows = query(folder.file(METRICS), values)
        except DpflError:
            return cls()
        return rows[0] if rows else cls()


@dataclass(frozen=True)
class RunProgress:
    """What people see of a run beside its tiles, at any time."""

    facts: RunFacts
    state: str
    """"running", "paused", "stopped" or "finished"."""
    last: LastValues

    @property
    def epsilon(self) -> float | str | None:
        """The epsilon so far, as `RunFacts.epsilon_so_far` has it."""
        return self.facts.epsilon_so_far(self.last.epsilon)

    @property
    def budget(self) -> BudgetView:
        """The epsilon so far beside the budget of the run."""
        return run_budget(self.facts, self.epsilon)

    def captions(self) -> dict[str, str]:
        """Says what to see in each curve.

        Returns:
            A caption by the name of the curve: "headline", "loss", "epsilon" and "tau". It is ""
            where nothing is to be seen yet.
        """
        return {
            "headline": self._headline(),
            "loss": self._loss(),
            "epsilon": self._epsilon(),
            "tau": self._tau(),
        }

    @property
    def _when(self) -> str:
        return TIMES.get(self.state, "now")

    def _headline(self) -> str:
        name, is_less = self.facts.headline, self.facts.headline in LESS_IS_BETTER
        best = self.last.lowest if is_less else self.last.highest
        if self.last.measured is None:
            return ""
        return (
            f"{metric_text(name, self.last.measured)} {self._when}, at best "
            f"{metric_text(name, best)}. If the curve is still "
            f"{'falling' if is_less else 'rising'}, a larger budget would help."
        )

    def _loss(self) -> str:
        if self.last.loss is None:
            return ""
        return (
            f"{self.last.loss:.3f} {self._when}. If it grows while the accuracy stays the same, "
            "the learning rate is too high."
        )

    def _epsilon(self) -> str:
        if self.last.epsilon is None:
            return ""
        budget, limit = self.budget, "so far"
        if budget.limit and budget.is_figure:
            limit = f"of {budget.limit} allowed"
        return (
            f"{epsilon_text(self.epsilon)} {limit} ({budget.scope}). Every release is in a ledger "
            "before it leaves a client."
        )

    def _tau(self) -> str:
        if self.last.steps is None:
            return ""
        price = (
            "A round costs the same bytes, however many steps it has"
            if protects_nobody(self.facts.privacy.get("unit"))
            else "Each step costs privacy, and each round costs bytes"
        )
        return f"{self.last.steps:,} in the last round. {price}."


def run_budget(facts: RunFacts, epsilon: float | str | None) -> BudgetView:
    """Shows the epsilon of a run beside its budget.

    Args:
        facts: The run.
        epsilon: Its epsilon so far.

    Returns:
        The view. Of a run that has ended it also says what is proven.
    """
    proven = facts.privacy.get("proven")
    return BudgetView.of(epsilon, facts.budget.get("epsilon"), facts.guarantee, proven)


def signal_caption(ratios: Sequence[float]) -> str:
    """Says what to see in the curve of step length over noise length.

    Args:
        ratios: The ratio of every round.

    Returns:
        The caption; "" without a round.
    """
    if not ratios:
        return ""
    return (
        f"The last step is {ratios[-1]:.3g} times as long as its noise alone. A step that is no "
        "longer than its noise carries no information by itself."
    )


@dataclass(frozen=True)
class AccountRow:
    """One account of a run, as a row of a table."""

    name: str
    state: str
    """What it does, or why its last reply did not count."""
    level: AccountLevel
    """How a layout colours the state."""
    releases: str
    remaining: str
    """How many releases it can still pay for, or "no limit"."""


def account_rows(
    accounts: Iterable[tuple[str, int, int]],
    lost_replies: Sequence[LostReply],
    result: Mapping[str, Any],
) -> list[AccountRow]:
    """Says of every account what it does.

    Args:
        accounts: The name of each, how many releases it has paid for, and how many it can still
            pay for.
        lost_replies: Replies that did not count, in their order.
        result: The content of `result.json`; empty while the run goes on.

    Returns:
        One row per account.
    """
    reasons = {reply.client: f"{reply.why} (round {reply.round})" for reply in lost_replies}
    shows_empty = not result or result.get("stopped_by") == "epsilon"
    rows = []
    for name, releases, remaining in accounts:
        level: AccountLevel = "good"
        state = "took part" if result else "takes part"
        if name in reasons:
            state, level = reasons[name], "wrong"
        elif remaining == 0 and shows_empty:
            state, level = "budget spent", "soft"
        remaining_text = "no limit" if remaining > NO_LIMIT else f"{remaining:,}"
        rows.append(AccountRow(name, state, level, f"{releases:,}", remaining_text))
    return rows


def no_accounts(guarantee: GuaranteeView) -> str:
    """Says why a run has no accounts.

    Args:
        guarantee: What is proven of the run.

    Returns:
        One sentence.
    """
    if guarantee.unit == "nobody":
        return "This run adds no noise, so it has no accounts."
    return "No round has ended yet."
