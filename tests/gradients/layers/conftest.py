"""Fixtures of the tests of layers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gradients.gradient_reference import one_thread_and_seed


@pytest.fixture(autouse=True)
def _same_weights_every_time() -> Iterator[None]:
    with one_thread_and_seed():
        yield
