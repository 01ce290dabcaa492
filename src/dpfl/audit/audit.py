"""An audit: the games that fit a system, and one verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dpfl.algorithms import Algorithm
from dpfl.audit.attacks.inversion import Draw
from dpfl.audit.games import BOUNDING, GAMES, AuditSettings, unplayed_findings
from dpfl.audit.one_release import population_for
from dpfl.audit.report import AuditFinding, AuditReport
from dpfl.bad_values import choose
from dpfl.client.optimisers import SGD, UncalibratedSGD
from dpfl.errors import DpflError
from dpfl.privacy import Keyed
from dpfl.privacy.mechanisms.noise import Uncalibrated

USUAL_NOISE, USUAL_RATE = 1.0, 1.0
"""For a system whose noise and learning rate would be planned from a budget."""


MOST_TRIALS = 10_000_000


def audit(
    algorithm: Algorithm,
    *,
    delta: float = 1e-5,
    confidence: float = 0.95,
    trials: int = 20_000,
    runs: int = 300,
    rounds: int = 4,
    canaries: int = 1000,
    seed: int = 0,
    games: Sequence[str] | None = None,
    draw: Draw | None = None,
    tell: Callable[[str], None] = lambda game: None,
) -> AuditReport:
    """Tries to refute what a system claims and what is proven of it; all bounds hold together with
    the confidence.

    Any `Algorithm` can be audited, and every game can be played by itself on releases and
    mechanisms of one's own.
    """
    if not 0.5 <= confidence < 1 or not 0 < delta < 1:
        raise DpflError(
            "An audit needs a confidence from 0.5 to below 1 and a delta inside (0, 1), not "
            f"{confidence}, {delta}."
        )
    if min(trials, runs, canaries) < 100 or max(trials, runs, canaries) > MOST_TRIALS or rounds < 1:
        raise DpflError(
            f"An audit needs 100 to {MOST_TRIALS:,} trials, runs and canaries, and at least 1 "
            "round."
        )
    if not 0 <= seed < 2**63:
        raise DpflError(f"A seed is a whole number from 0 to 2^63 - 1, not {seed}.")
    chosen = {game: choose("game", game, GAMES) for game in (GAMES if games is None else games)}
    made = ready(algorithm, rounds)
    if made.release is None:
        return AuditReport(
            made.name,
            made.variant,
            made.unit,
            delta,
            confidence,
            None,
            (),
            "nothing is claimed: there is no noise",
        )
    shared = len([game for game in chosen if game in BOUNDING]) or 1
    each = 1 - (1 - confidence) / shared
    setting = AuditSettings(
        made, delta, each, trials, runs, rounds, canaries, seed, draw, Keyed(seed)
    )
    findings = []
    for game, play in chosen.items():
        tell(game)
        findings.append(_played(game, play, setting))
    multiplier = made.release.noise.noise_multiplier if made.release.noise else None
    others = tuple(game for game in GAMES if game not in chosen)
    return AuditReport(
        made.name,
        made.variant,
        made.unit,
        delta,
        confidence,
        multiplier,
        tuple(findings),
        noise=made.noise,
        left_out=others,
    )


def _played(
    game: str, play: Callable[[AuditSettings], AuditFinding | str], setting: AuditSettings
) -> AuditFinding:
    try:
        found = play(setting)
    except DpflError as error:
        found = str(error)
    return unplayed_findings(game, found) if isinstance(found, str) else found


def ready(algorithm: Algorithm, rounds: int = 4) -> Algorithm:
    """With noise and a rate, where they were still to be planned, and for so many rounds, where it
    has to know them.
    """
    release = algorithm.release
    if release is None:
        return algorithm
    made = (
        algorithm.with_noise(USUAL_NOISE) if isinstance(release.noise, Uncalibrated) else algorithm
    )
    if isinstance(made.local.optimiser, UncalibratedSGD):
        made = replace(made, local=replace(made.local, optimiser=SGD(USUAL_RATE)))
    return made.for_rounds(rounds, population_for(release))


def with_finding(report: AuditReport, finding: AuditFinding) -> AuditReport:
    return replace(report, findings=(*report.findings, finding))
