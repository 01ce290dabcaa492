"""A ledger with a limit, and the place of one."""

import pytest

from tests.privacy.workers import LIMIT, open_ledger


@pytest.fixture
def path(tmp_path):
    return tmp_path / "client.sqlite"


@pytest.fixture
def ledger(path):
    opened = open_ledger(path, limit=LIMIT)
    yield opened
    opened.close()
