"""The words for whom a guarantee protects, as statements, records and messages write them.

An algorithm that runs says it by its placed release (`client/noise_placement.py`). What was written
down has the word only, and these functions read it.
"""

from __future__ import annotations

SAMPLE_UNIT, PERSON_UNIT = "sample", "person"
SAMPLE_UNITS = (SAMPLE_UNIT, PERSON_UNIT)
"""The units inside a client: one row, or all rows of one person at that client."""
CLIENT_UNIT = "client"
"""All that a client has."""
NO_UNIT = "none"
"""Nobody: there is no noise."""


def protects_nobody(unit: str | None) -> bool:
    """Says whether a guarantee is written down as none, because there was no noise.

    Args:
        unit: The word that was written; None or "" where nothing is written yet.

    Returns:
        Whether nobody is protected. What is not written yet may protect somebody.
    """
    return unit == NO_UNIT


def protects_client(unit: str | None) -> bool:
    """Says whether a guarantee is for all that a client has.

    Args:
        unit: The word that was written; None or "" where nothing is written yet.

    Returns:
        Whether whole clients are protected.
    """
    return unit == CLIENT_UNIT


def protects_person(unit: str | None) -> bool:
    """Says whether a guarantee is for all rows of one person at a client.

    Args:
        unit: The word that was written; None or "" where nothing is written yet.

    Returns:
        Whether whole persons are protected.
    """
    return unit == PERSON_UNIT
