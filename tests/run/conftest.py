"""Federations that several files of tests share."""

import pytest

from dpfl.data import IID, Federation
from tests.conftest import small_source


@pytest.fixture(scope="session")
def ten() -> Federation:
    """Ten clients with 100 images each."""
    return small_source().split(clients=10, how=IID(), seed=0)
