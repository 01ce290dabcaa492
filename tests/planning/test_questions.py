"""The old path of `PrivateMetric`."""

import pytest

from dpfl import PrivateMetric


def test_the_old_path_leads_to_the_metric() -> None:
    with pytest.warns(DeprecationWarning, match="paid_queries.PrivateMetric"):
        from dpfl.planning.questions import PrivateMetric as OldMetric
    assert OldMetric is PrivateMetric
