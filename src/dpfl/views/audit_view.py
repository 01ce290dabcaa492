"""An audit in words: what was measured, and what each game found.

The report, the web pages and the certificate lay out an `AuditView` of a stored outcome. The
terminal lays out an `AuditReportView`, which has every game.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpfl.privacy.figures import UNBOUNDED, epsilon_text, rounded_down

if TYPE_CHECKING:
    from dpfl.audit.report import AuditFinding, AuditReport


@dataclass(frozen=True)
class AuditView:
    """The outcome of an audit as a run's folder or a certificate holds it."""

    figure: str
    """The measured lower bound, rounded down; "unbounded", "not measured" or "not audited"."""
    measured: str
    """The same for places that do not call it a lower bound."""
    label: str
    """What the figure is, and of what."""
    verdict: str
    """The word of the verdict; "" without an audit."""
    games: str
    """The games that were played; "" where the outcome does not say."""

    @classmethod
    def of(cls, outcome: Mapping[str, Any] | None) -> AuditView:
        """Puts a stored outcome into words.

        Args:
            outcome: The content of `audit.json`, or an audit as a certificate lists it. Anybody
                may have written it, and older versions do not say which games were played. None
                or empty without an audit.

        Returns:
            The outcome in words.
        """
        label = "lower bound on epsilon, measured by an attack"
        if not outcome:
            return cls("not audited", "not audited", label, "", "")
        measured_value, scope = outcome.get("measured"), outcome.get("scope")
        figure = lower_bound_text(measured_value)
        proven = upper_bound_text(outcome.get("proven"), absent="nothing")
        there = f" on {scope} (proven there: {proven})" if scope else ""
        return cls(
            figure=figure,
            measured=f"at least {figure}" if _is_finite(measured_value) else figure,
            label=f"{label}{there}",
            verdict=str(outcome.get("verdict") or "no verdict"),
            games=_games(outcome.get("played")),
        )

    @property
    def note(self) -> str:
        """The label with the verdict, or how to audit the run."""
        return (
            f"{self.label}: {self.verdict}" if self.verdict else "no attack was run: dpfl audit RUN"
        )

    @property
    def outcome(self) -> str:
        """The verdict and the games that it rests on."""
        return f"{self.verdict} in {self.games}" if self.games else self.verdict


@dataclass(frozen=True)
class AuditRow:
    """One game."""

    game: str
    scope: str
    claimed: str
    proven: str
    measured: str
    """With ">=" for a lower bound and "~" for an estimate."""
    verdict: str
    detail: str
    """How it was measured, or why it was not."""


@dataclass(frozen=True)
class AuditReportView:
    """An audit with all of its games."""

    system: str
    lead: str
    """Variant, unit, delta, noise and the confidence of all bounds together."""
    rows: tuple[AuditRow, ...]
    gaps: tuple[AuditRow, ...]
    """Games that could not be played, or do not apply."""
    verdict: str
    reason: str
    coverage: str
    """Which games the verdict rests on; "" if there were none."""

    @classmethod
    def of(cls, report: AuditReport) -> AuditReportView:
        """Puts a report into words.

        Args:
            report: What `dpfl.audit.audit` returns.

        Returns:
            The report in words.
        """
        noise = ""
        if report.noise_multiplier:
            noise = f", {report.noise} noise of multiplier {report.noise_multiplier:.4g}"
        games_played = set(report.games_played)
        rows = tuple(_row(finding) for finding in report.findings)
        return cls(
            system=report.system,
            lead=(
                f"({report.variant}): one {report.unit}, delta {report.delta:g}{noise}; bounds "
                f"hold together with confidence {report.confidence:g}"
            ),
            rows=tuple(row for row in rows if row.game in games_played),
            gaps=tuple(row for row in rows if row.game not in games_played),
            verdict=report.verdict,
            reason=_reason(report),
            coverage=f"The verdict rests on these games: {report.coverage}."
            if report.findings
            else "",
        )


def lower_bound_text(value: Any) -> str:
    """Shows what an audit measured.

    Args:
        value: A lower bound, a word such as "unbounded", or None if no game measured an epsilon.

    Returns:
        Four decimal places, rounded down, or a word.
    """
    if value is None:
        return "not measured"
    if isinstance(value, int | float):
        return f"{rounded_down(value):.4f}" if math.isfinite(value) else UNBOUNDED
    return value if isinstance(value, str) else "see file"


def upper_bound_text(value: Any, absent: str) -> str:
    """Shows a claimed or a proven epsilon beside a measured one.

    Args:
        value: A number, a word, or None. Anybody may have written it.
        absent: What stands for None.

    Returns:
        Four decimal places, rounded up, or a word.
    """
    if value is None or isinstance(value, int | float | str):
        return epsilon_text(value, absent)
    return "see file"


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _games(games: Any) -> str:
    return (", ".join(map(str, games)) or "no game") if isinstance(games, list) else ""


def _row(finding: AuditFinding) -> AuditRow:
    measured_text = ""
    if finding.measured is not None:
        measured_text = lower_bound_text(finding.measured)
        if math.isfinite(finding.measured):
            measured_text = f"{'>=' if finding.confidence else '~'} {measured_text}"
    return AuditRow(
        game=finding.game,
        scope=finding.scope,
        claimed=epsilon_text(finding.claimed, absent=""),
        proven=epsilon_text(finding.proven, absent=""),
        measured=measured_text,
        verdict=finding.verdict,
        detail=finding.detail,
    )


def _reason(report: AuditReport) -> str:
    """What was measured beside what is claimed and proven, or why there is no verdict."""
    from dpfl.audit.report import TOO_LITTLE

    deciding = report.deciding
    if deciding is None or deciding.measured is None or report.verdict == TOO_LITTLE:
        return report.reason
    measurement = "a value without noise tells neighbours apart, so no epsilon holds"
    if math.isfinite(deciding.measured):
        figure = lower_bound_text(deciding.measured)
        measurement = f"at least epsilon {figure} was measured in {deciding.scope}"
    return (
        f"{measurement}; claimed {epsilon_text(deciding.claimed, absent='nothing')}, proven "
        f"{epsilon_text(deciding.proven, absent='nothing')}"
    )
