"""Audits an algorithm: plays the games that fit it, and gives one verdict.

A *game* tries to refute a guarantee. An adversary sees what a system releases, with one unit's data
(the canary) and without it, and guesses which. Under (epsilon, delta)-privacy no adversary can be
right too often: for false positive rate FPR and false negative rate FNR,

    ln((1 - FNR - delta) / FPR) <= epsilon

and the same with the rates exchanged. So measured rates give a *lower bound* on epsilon. It holds
with a stated confidence (Clopper-Pearson), whatever the adversary is. Other games look for an exact
fault: a value without noise that differs between neighbours, a release without a debit, noise that
is used twice. All games run the real clients, coordinator and ledgers, not a model of them.

A *verdict* compares the lower bound with the proven and the claimed epsilon:

- `broken`: more was measured than is proven. The fault is in this software, or in the parts as they
  were combined.
- `refuted`: more was measured than the paper claims. The proven epsilon stands.
- `consistent`: no game measured more than is proven or claimed.
- `not enough was tested`: nothing wrong was found, and too many games could not be played.

`consistent` is no proof. A lower bound says what these games found with this many trials; a better
adversary may find more. The proof is the accountant's. The audit tests whether the code does what
the proof assumes.

    >>> audit(dpfl.algorithms.fedavg_dp(noise_multiplier=1.0), AuditSettings(trials=2000)).verdict
    'consistent'
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from dpfl.algorithms import Algorithm
from dpfl.audit.attacks.inversion import Draw
from dpfl.audit.games import BOUNDING, GAMES, RENAMED_GAMES, unplayed_finding
from dpfl.audit.measurements.one_release import population_for
from dpfl.audit.report import AuditFinding, AuditReport
from dpfl.audit.subject import AuditSettings, AuditSubject
from dpfl.bad_values import choose
from dpfl.client.descent.optimisers import SGD
from dpfl.deprecation import new_name, regroup_options
from dpfl.errors import DpflError
from dpfl.privacy import Keyed

USUAL_NOISE, USUAL_RATE = 1.0, 1.0
"""Noise and learning rate of a system for which a run would plan them from its budget."""


def audit(
    algorithm: Algorithm,
    settings: AuditSettings | None = None,
    *,
    games: Sequence[str] | None = None,
    draw: Draw | None = None,
    tell: Callable[[str], None] = lambda game: None,
    **old_options: Any,
) -> AuditReport:
    """Tries to refute the epsilon that a system claims and the epsilon that is proven.

    Args:
        algorithm: Any algorithm, also one of your own.
        settings: How hard to try, and at which delta and confidence.
        games: Names of the games to play; by default all.
        draw: Draws a picture of a reconstructed image; None for no picture.
        tell: Receives the name of each game before it is played.
        **old_options: Options of version 0.1 that are now in `settings`. They go in version 0.3.

    Returns:
        The findings and the verdict. All lower bounds hold together with the confidence.

    Raises:
        DpflError: There is no such game, or a setting is out of range.
    """
    (settings,) = regroup_options(
        "audit",
        old_options,
        {"settings": (settings, AuditSettings, AuditSettings.__match_args__)},
    )
    settings = settings or AuditSettings()
    names = [new_name("game", game, RENAMED_GAMES) for game in (GAMES if games is None else games)]
    plays = {game: choose("game", game, GAMES) for game in names}
    algorithm = ready(algorithm, settings.rounds)
    if algorithm.release is None:
        return AuditReport(
            algorithm.name,
            algorithm.variant,
            algorithm.unit,
            settings.delta,
            settings.confidence,
            None,
            (),
            "the system adds no noise and claims nothing",
        )
    bounding = len([game for game in plays if game in BOUNDING]) or 1
    each = 1 - (1 - settings.confidence) / bounding
    subject = AuditSubject(algorithm, settings, each, draw, Keyed(settings.seed))
    findings = []
    for game, play in plays.items():
        tell(game)
        findings.append(_play(game, play, subject))
    noise = algorithm.release.noise
    return AuditReport(
        algorithm.name,
        algorithm.variant,
        algorithm.unit,
        settings.delta,
        settings.confidence,
        noise.noise_multiplier if noise else None,
        tuple(findings),
        noise=algorithm.noise,
        left_out=tuple(game for game in GAMES if game not in plays),
    )


def _play(
    game: str, play: Callable[[AuditSubject], AuditFinding | str], subject: AuditSubject
) -> AuditFinding:
    try:
        outcome = play(subject)
    except DpflError as error:
        outcome = str(error)
    return unplayed_finding(game, outcome) if isinstance(outcome, str) else outcome


def ready(algorithm: Algorithm, rounds: int = 4) -> Algorithm:
    """Completes an algorithm for an audit.

    Args:
        algorithm: The algorithm.
        rounds: Rounds of its runs, for releases that have to know them.

    Returns:
        The algorithm with noise and a learning rate, where a run would plan them.
    """
    release = algorithm.release
    if release is None:
        return algorithm
    if release.uncalibrated:
        algorithm = algorithm.with_noise(USUAL_NOISE)
    if not algorithm.local.optimiser.calibrated:
        algorithm = replace(algorithm, local=replace(algorithm.local, optimiser=SGD(USUAL_RATE)))
    return algorithm.for_rounds(rounds, population_for(release))


def with_finding(report: AuditReport, finding: AuditFinding) -> AuditReport:
    """Adds a finding to a report.

    Args:
        report: The report.
        finding: One more finding.

    Returns:
        The report with it.
    """
    return replace(report, findings=(*report.findings, finding))
