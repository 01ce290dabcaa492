"""The report of an audit: one finding per game, and the verdict that follows from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dpfl.deprecation import keep_old_names
from dpfl.privacy.statement import figure

BROKEN = "broken"
"""More was measured than is proven. The fault is in this software, or in how the parts of the
system were combined.
"""

REFUTED, CONSISTENT, ESTIMATE, UNTESTABLE = "refuted", "consistent", "estimate", "not testable"

INAPPLICABLE = "does not apply"
"""The verdict where the system has nothing that the game is about. `UNTESTABLE` is for a game that
could not be played, which is a gap.
"""

TOO_LITTLE = "not enough was tested"
"""The verdict of an audit that found nothing wrong and played too little to say so."""

ORDER = (BROKEN, REFUTED, CONSISTENT, ESTIMATE, UNTESTABLE, INAPPLICABLE)

ALWAYS = ("one release", "ledgers", "noise", "sensitivity")
"""Games about what every system with noise has."""

ESTIMATING = ("canary clients", "membership", "inversion", "membership of the run")
"""Games that estimate, and can refute nothing."""


@keep_old_names(shown="display_value")
@dataclass(frozen=True)
class AuditFinding:
    """The result of one game.

    Attributes:
        game: Name of the game.
        scope: What was released: one release, some rounds, a run.
        claimed: Claimed epsilon of it; None if nothing is claimed.
        proven: Proven epsilon of it; None if the game is about no epsilon.
        measured: Lower bound on epsilon (infinite for a leak), or an estimate without confidence.
        confidence: Confidence of the lower bound.
        verdict: The verdict on this game.
        detail: How it was measured, or why it was not, in words.
    """

    game: str
    scope: str
    claimed: float | None
    proven: float | None
    measured: float | None
    confidence: float | None
    verdict: str
    detail: str

    def to_dict(self) -> dict[str, Any]:
        """Returns the finding as plain values, for JSON.

        Returns:
            Its fields, with figures rounded safely.
        """
        return (
            asdict(self)
            | {name: figure(getattr(self, name)) for name in ("claimed", "proven")}
            | {"measured": self.display_value}
        )

    @property
    def display_value(self) -> float | str | None:
        """The measured epsilon for people: a lower bound is rounded down."""
        if self.measured is None or math.isfinite(self.measured):
            return None if self.measured is None else math.floor(self.measured * 1e6) / 1e6
        return "unbounded"


def verdict(measured_epsilon: float, claimed_epsilon: float | None, proven_epsilon: float) -> str:
    """Judges a lower bound.

    Args:
        measured_epsilon: Lower bound on epsilon.
        claimed_epsilon: Claimed epsilon; None if nothing is claimed.
        proven_epsilon: Proven epsilon.

    Returns:
        BROKEN above what is proven, REFUTED above what is claimed, else CONSISTENT.
    """
    if measured_epsilon > proven_epsilon:
        return BROKEN
    return (
        REFUTED
        if claimed_epsilon is not None and measured_epsilon > claimed_epsilon
        else CONSISTENT
    )


@keep_old_names(played="games_played")
@dataclass(frozen=True)
class AuditReport:
    """All findings of an audit. Their lower bounds hold together with the confidence.

    Attributes:
        system: Name of the system.
        variant: Its variant.
        unit: What it protects.
        delta: Delta of the audit.
        confidence: Confidence of all lower bounds together.
        noise_multiplier: Noise multiplier of the release; None without noise.
        findings: One finding per game.
        why: Why nothing was played, if nothing was.
        noise: Kind of noise: floating-point or secure.
        left_out: Games that were not asked for.
    """

    system: str
    variant: str
    unit: str
    delta: float
    confidence: float
    noise_multiplier: float | None
    findings: Sequence[AuditFinding]
    why: str = ""
    noise: str = "floating-point"
    left_out: Sequence[str] = ()
    """Games that were not asked for."""

    @property
    def deciding(self) -> AuditFinding | None:
        """The finding with the worst verdict; of several, the one that measured most."""
        return min(self.findings, key=_rank, default=None)

    @property
    def verdict(self) -> str:
        """The worst verdict of any game. A good verdict counts only if enough was played."""
        worst = self.deciding.verdict if self.deciding else UNTESTABLE
        if worst in (BROKEN, REFUTED) or not self.findings or self._enough:
            return worst
        return TOO_LITTLE

    @property
    def _enough(self) -> bool:
        """Says whether all mandatory and more than half of the applicable games were played. Where
        only estimates were requested, one of them is enough.
        """
        decisive = [finding for finding in self.findings if finding.game not in ESTIMATING]
        if not decisive:
            return any(finding.verdict == ESTIMATE for finding in self.findings)
        apply = [finding for finding in decisive if finding.verdict != INAPPLICABLE]
        gaps = [finding.game for finding in apply if finding.verdict == UNTESTABLE]
        return not any(game in ALWAYS for game in gaps) and 2 * len(gaps) < len(apply)

    @property
    def games_played(self) -> list[str]:
        """Names of the games that were played."""
        return [
            finding.game
            for finding in self.findings
            if finding.verdict not in (UNTESTABLE, INAPPLICABLE)
        ]

    def _with(self, word: str) -> list[str]:
        return [finding.game for finding in self.findings if finding.verdict == word]

    @property
    def coverage(self) -> str:
        """Which games were played and which were not, in words."""
        kinds = {
            "played": self.games_played,
            UNTESTABLE: self._with(UNTESTABLE),
            INAPPLICABLE: self._with(INAPPLICABLE),
            "not asked for": self.left_out,
        }
        return "; ".join(
            f"{kind}: {', '.join(games) or 'none'}"
            for kind, games in kinds.items()
            if games or kind == "played"
        )

    @property
    def reason(self) -> str:
        """Why this is the verdict, in words."""
        if self.why or self.deciding is None:
            return self.why
        if self.verdict != TOO_LITTLE:
            return self.deciding.detail
        gaps = ", ".join(self._with(UNTESTABLE)) or "none of the selected games applies"
        return f"the games that ran found no fault, but too many games could not run: {gaps}"

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as plain values, for JSON.

        Returns:
            The verdict, its figures, the coverage and all findings.
        """
        deciding = self.deciding.to_dict() if self.deciding else {}
        names = ("claimed", "proven", "measured", "scope", "game")
        return {
            "system": self.system,
            "variant": self.variant,
            "unit": self.unit,
            "delta": self.delta,
            "confidence": self.confidence,
            "noise": self.noise,
            "noise_multiplier": self.noise_multiplier,
            **{name: deciding.get(name) for name in names},
            "verdict": self.verdict,
            "why": self.reason,
            "played": self.games_played,
            "not_testable": self._with(UNTESTABLE),
            "does_not_apply": self._with(INAPPLICABLE),
            "not_asked_for": list(self.left_out),
            "games": [finding.to_dict() for finding in self.findings],
        }


def _rank(finding: AuditFinding) -> tuple[int, float]:
    return ORDER.index(finding.verdict), -(
        finding.measured if finding.measured is not None else -1.0
    )
