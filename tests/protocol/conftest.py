"""Nodes, for tests of what they remember."""

from tests.node.conftest import opened  # noqa: F401
