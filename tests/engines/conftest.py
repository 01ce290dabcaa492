"""An engine in this process, which the others are compared with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dpfl.engines import SerialEngine, local_engine
from tests.engines.clients import context
from tests.node.conftest import opened  # noqa: F401


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[SerialEngine]:
    engine = local_engine(context(tmp_path), 0, workers=1)
    assert isinstance(engine, SerialEngine)
    yield engine
    engine.close()
