"""What came of looking at one thing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class VerificationCheck:
    """One thing that was looked at: what came of it, a sentence for each thing that is wrong, and
    one for each thing that could not be checked."""

    name: str
    outcome: str
    findings: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
