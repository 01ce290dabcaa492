"""The words for whom a guarantee protects."""

from __future__ import annotations

import pytest

from dpfl.privacy.units import SAMPLE_UNITS, protects_client, protects_nobody, protects_person


@pytest.mark.parametrize(
    ("unit", "nobody", "client"),
    [
        ("none", True, False),
        ("client", False, True),
        ("", False, False),
        (None, False, False),
        *((unit, False, False) for unit in SAMPLE_UNITS),
    ],
)
def test_a_written_unit_says_who_is_protected(unit: str | None, nobody: bool, client: bool) -> None:
    assert (protects_nobody(unit), protects_client(unit)) == (nobody, client)
    assert protects_person(unit) == (unit == "person")
