"""An epsilon beside its limit, in words: what runs, accounts and nodes have used and have left.

What was used is an upper bound and is rounded up. What remains is a lower bound and is rounded
down. Pages print both and draw the bar; they compute neither.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from dpfl.privacy.figures import epsilon_text, rounded_down
from dpfl.privacy.statement_view import GuaranteeView

NO_REMAINDER = "–"
"""What stands where nothing can be left: without a limit, or without an epsilon."""

EVERY_CLIENT = "every client"
"""The name in a statement for clients that all have the same epsilon."""


@dataclass(frozen=True)
class BudgetView:
    """An epsilon, its limit and what remains."""

    figure: str
    """The epsilon, rounded up; without one, "no guarantee" or "-"."""
    is_figure: bool
    """Whether `figure` is a number."""
    limit: str
    """The limit; "" without one."""
    remaining: str
    """The limit less the epsilon, rounded down, at least 0."""
    percent: float
    """How much of a bar is filled, from 0 to 100."""
    is_over: bool
    """Whether the epsilon is above its limit."""
    level: Literal["proven", "nothing", "running"]
    """How a layout colours a word that stands for the figure."""
    scope: str
    """What the epsilon is for: unit and delta."""
    note: str
    """What is proven, where that is more than was used; "" otherwise."""

    @classmethod
    def of(
        cls,
        epsilon: float | str | None,
        limit: float | None,
        guarantee: GuaranteeView,
        proven: float | str | None = None,
    ) -> BudgetView:
        """Puts an epsilon and its limit into words.

        Args:
            epsilon: An upper bound; a word or None where there is none.
            limit: Its limit; None or 0 without one.
            guarantee: What the epsilon is for, and what stands where there is none.
            proven: The proven epsilon, where `epsilon` is what was used.

        Returns:
            The view.
        """
        if not _is_finite(epsilon):
            return cls(
                guarantee.no_figure,
                False,
                _limit_text(limit),
                NO_REMAINDER,
                0.0,
                False,
                guarantee.level,
                guarantee.scope,
                "",
            )
        assert isinstance(epsilon, int | float)
        is_more = isinstance(proven, int | float) and _is_finite(proven) and proven > epsilon
        return cls(
            figure=epsilon_text(epsilon),
            is_figure=True,
            limit=_limit_text(limit),
            remaining=remaining_text(epsilon, limit),
            percent=min(100.0, 100 * epsilon / limit) if limit else 0.0,
            is_over=bool(limit) and epsilon > (limit or 0.0),
            level=guarantee.level,
            scope=guarantee.scope,
            note=f"proven {epsilon_text(proven)}, fixed in advance" if is_more else "",
        )

    def to_dict(self) -> dict[str, Any]:
        """Lists the fields for a web page.

        Returns:
            The fields by name.
        """
        return asdict(self)


def remaining_text(epsilon: float, limit: float | None) -> str:
    """Says how much of a limit remains.

    Args:
        epsilon: An upper bound on what was used.
        limit: The limit; None or 0 without one.

    Returns:
        Four decimal places, rounded down, and never below 0; a dash without a limit.

    Example:
        >>> remaining_text(3.99999, 8.0)
        '4.0000'
    """
    return f"{rounded_down(max(0.0, limit - epsilon)):.4f}" if limit else NO_REMAINDER


def account_budgets(
    statement: Mapping[str, Any], limits: Mapping[str, float], guarantee: GuaranteeView
) -> dict[str, BudgetView]:
    """Shows the proven epsilon of every account of a run beside its owner's limit.

    Args:
        statement: The content of `statement.json`; empty until the run ends.
        limits: The limits of the accounts, where they are known.
        guarantee: What is proven of the run.

    Returns:
        A view by the name of the account. The name "every client" stands for all that are missing.
    """
    common = limits.get(EVERY_CLIENT)
    return {
        name: BudgetView.of(epsilon, limits.get(name, common), guarantee)
        for name, epsilon in (statement.get("per_client") or {}).items()
    }


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _limit_text(limit: float | None) -> str:
    return f"{limit!r}".removesuffix(".0") if limit else ""
