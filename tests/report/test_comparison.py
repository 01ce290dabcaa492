"""The old path of `dpfl.views.comparison`."""

import pytest

import dpfl


def test_the_old_path_leads_to_the_functions() -> None:
    with pytest.warns(DeprecationWarning, match="views.comparison"):
        from dpfl.report.comparison import compare, runs
    assert (compare, runs) == (dpfl.compare, dpfl.runs)
