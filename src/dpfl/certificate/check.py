"""The outcome of one check of a certificate."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class VerificationCheck:
    """The outcome of one check.

    Attributes:
        name: What was checked.
        outcome: The outcome in words, where nothing is wrong.
        findings: What is wrong, one sentence each.
        not_checked: What could not be checked here, one sentence each.
    """

    name: str
    outcome: str
    findings: tuple[str, ...] = ()
    not_checked: tuple[str, ...] = ()
