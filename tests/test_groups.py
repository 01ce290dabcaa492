"""Tests that share a server, a browser or a federation are kept in one worker, or each worker would
start its own.
"""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("web")
def test_a_group_is_one_worker(request: pytest.FixtureRequest) -> None:
    """pytest 9.2.0 and pytest-xdist 3.8.0 together forget groups without a word."""
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("tests are not dealt to workers by group")
    assert request.node.nodeid.endswith("@web")
