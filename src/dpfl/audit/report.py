"""What an audit found: a line a game, and the verdict that follows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dpfl.privacy.statement import figure

BROKEN = "broken"
"""More was measured than is proven: the fault is in this software, or in the system as it was put together."""

REFUTED, CONSISTENT, ESTIMATE, UNTESTABLE = "refuted", "consistent", "estimate", "not testable"
ORDER = (BROKEN, REFUTED, CONSISTENT, ESTIMATE, UNTESTABLE)


@dataclass(frozen=True)
class Finding:
    """One game. `measured` is a lower bound with its confidence (infinite: a leak), or an estimate where there is none."""

    game: str
    scope: str
    claimed: float | None
    proven: float | None
    measured: float | None
    confidence: float | None
    verdict: str
    detail: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {name: figure(getattr(self, name)) for name in ("claimed", "proven")} | {"measured": self.shown}

    @property
    def shown(self) -> float | str | None:
        """A lower bound is rounded down."""
        if self.measured is None or math.isfinite(self.measured):
            return None if self.measured is None else math.floor(self.measured * 1e6) / 1e6
        return "unbounded"


def verdict(measured: float, claimed: float | None, proven: float) -> str:
    """Of a lower bound: against what is proven first, then against what is claimed."""
    if measured > proven:
        return BROKEN
    return REFUTED if claimed is not None and measured > claimed else CONSISTENT


@dataclass(frozen=True)
class Report:
    """All games; the bounds of all of them hold together with the confidence."""

    system: str
    variant: str
    unit: str
    delta: float
    confidence: float
    noise_multiplier: float | None
    findings: Sequence[Finding]
    why: str = ""
    noise: str = "floating-point"

    @property
    def deciding(self) -> Finding | None:
        """The game with the worst verdict; of several the one that measured most."""
        return min(self.findings, key=_rank, default=None)

    @property
    def verdict(self) -> str:
        return self.deciding.verdict if self.deciding else UNTESTABLE

    def finding(self, game: str) -> Finding:
        return next(finding for finding in self.findings if finding.game == game)

    def to_dict(self) -> dict[str, Any]:
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
            "why": self.why or deciding.get("detail", ""),
            "games": [finding.to_dict() for finding in self.findings],
        }


def _rank(finding: Finding) -> tuple[int, float]:
    return ORDER.index(finding.verdict), -(finding.measured if finding.measured is not None else -1.0)
