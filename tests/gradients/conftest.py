"""Fixtures of the tests of gradients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gradients.gradient_reference import one_thread_and_seed


@pytest.fixture(name="same_weights")
def _same_weights() -> Iterator[None]:
    """The same initial weights in every test, and one thread."""
    with one_thread_and_seed():
        yield
