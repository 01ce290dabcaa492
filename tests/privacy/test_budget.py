"""The old path of `Budget`."""

import pytest

from dpfl.privacy import Budget


def test_the_old_path_leads_to_the_budget() -> None:
    with pytest.warns(DeprecationWarning, match="privacy.accounting.budget.Budget"):
        from dpfl.privacy.budget import Budget as OldBudget
    assert OldBudget is Budget
