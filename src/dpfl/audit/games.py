"""The games of an audit by name.

A game returns a finding, or a string that says why it was not played: a `NotApplicable` if the
system has nothing that the game is about, and any other string if it could not be played.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from dpfl.audit.amplification.game import play_amplified
from dpfl.audit.attacks import attacks, inversion
from dpfl.audit.bounds import MeasuredEpsilon
from dpfl.audit.checks.ledger_check import check_ledgers
from dpfl.audit.checks.mask_checks import masks
from dpfl.audit.checks.noise_check import noises
from dpfl.audit.checks.randomness_checks import RandomnessCheck
from dpfl.audit.checks.sampling_checks import batches, cohorts, coins
from dpfl.audit.checks.sensitivity_check import check_sensitivity
from dpfl.audit.leaks import leaks
from dpfl.audit.measurements.canary_clients import canary_clients
from dpfl.audit.measurements.one_release import one_release
from dpfl.audit.measurements.query_games import one_answer, one_slope
from dpfl.audit.measurements.whole_run import many_runs, one_run
from dpfl.audit.report import (
    BROKEN,
    CONSISTENT,
    ESTIMATE,
    INAPPLICABLE,
    UNTESTABLE,
    AuditFinding,
    verdict,
)
from dpfl.audit.subject import AuditSubject
from dpfl.client.noise_placement import NoisePlacement
from dpfl.privacy.accounting.events import add_all
from dpfl.privacy.queries.query import PrivateQuery
from dpfl.privacy.units import protects_person

CHANGES = "its noise changes from round to round, and this game has the same in all"
SLOPES = 500


class NotApplicable(str):
    """The reason why a game is not about this system. Any other string says why it could not be
    played.
    """


def _one_release(subject: AuditSubject) -> AuditFinding:
    """Measures one release with and without the worst canary."""
    release = subject.release
    measurement = one_release(
        release,
        subject.settings.delta,
        subject.settings.trials,
        subject.confidence,
        subject.randomness,
        subject.population,
    )
    scope = f"{subject.settings.rounds} rounds" if release.whole_run else "one release"
    return subject.judge("one release", scope, 1, measurement)


def _query(subject: AuditSubject) -> AuditFinding | str:
    """Measures all queries, and keeps the one that comes closest to its proven epsilon."""
    algorithm = subject.algorithm
    candidates: tuple[PrivateQuery | None, ...] = (
        algorithm.centre,
        algorithm.columns,
        algorithm.metric,
        algorithm.weights.query,
    )
    queries = [query for query in candidates if query and query.noise_multiplier]
    if not queries:
        return NotApplicable("clients answer nothing with noise besides their updates")
    each = 1 - (1 - subject.confidence) / len(queries)
    findings = []
    for query in queries:
        persons = protects_person(algorithm.unit)
        measurement = one_answer(
            query,
            subject.settings.delta,
            subject.settings.trials // 10,
            each,
            subject.randomness,
            persons,
            algorithm.noise_shares,
        )
        findings.append(
            _judge_bound("query", "one answer", subject.epsilon({query.event: 1}), measurement)
        )
    return max(findings, key=lambda finding: (finding.measured or 0.0) / (finding.proven or 1.0))


def _slope(subject: AuditSubject) -> AuditFinding | str:
    """Measures the slope that clients pay for."""
    samples = subject.algorithm.samples
    if not subject.algorithm.steps.paid_slopes or samples is None:
        return NotApplicable("clients are asked for no slope")
    trials = min(subject.settings.trials // 10, SLOPES)
    measurement = one_slope(
        subject.algorithm, subject.settings.delta, trials, subject.confidence, subject.randomness
    )
    return _judge_bound(
        "slope", "one slope", subject.epsilon({samples.event(subject.population): 1}), measurement
    )


def _judge_bound(
    game: str, scope: str, proven: float, measurement: MeasuredEpsilon
) -> AuditFinding:
    """Judges a bound where no paper claims anything."""
    word = verdict(measurement.epsilon, None, proven)
    return AuditFinding(
        game,
        scope,
        None,
        proven,
        measurement.epsilon,
        measurement.confidence,
        word,
        measurement.how,
    )


def _batches(subject: AuditSubject) -> AuditFinding | str:
    """Tests whether batches or cohorts are drawn as the accounting assumes."""
    algorithm = subject.algorithm
    if (
        algorithm.placement is NoisePlacement.EVERY_STEP
        and algorithm.samples
        and algorithm.samples.sampling.by_chance
    ):
        return _finding("batches", "a run", batches(algorithm, subject.settings.seed))
    sampling, seed = algorithm.clients.sampling, subject.settings.seed
    if algorithm.placement is NoisePlacement.ROUND_SUM and sampling.by_chance:
        check = coins(algorithm, seed) if algorithm.noise_shares else cohorts(sampling, seed)
        return _finding("batches", "a run", check)
    return NotApplicable("the system does not sample: every unit takes part each time, or in turns")


def _masks(subject: AuditSubject) -> AuditFinding | str:
    """Tests the masks of secure sums."""
    sums = subject.algorithm.noise_shares
    return (
        _finding("masks", "a run", masks(sums))
        if sums
        else NotApplicable("the server sees every client by itself")
    )


def _sensitivity(subject: AuditSubject) -> AuditFinding:
    """Tests how far one unit moves a release."""
    return _finding(
        "sensitivity", "one release", check_sensitivity(subject.algorithm, subject.settings.seed)
    )


def _amplification(subject: AuditSubject) -> AuditFinding | str:
    """Tests whether a model that amplifies rounding lets one unit move a sum further."""
    if subject.algorithm.placement is not NoisePlacement.EVERY_STEP:
        return (
            "a client's update is computed from its own data alone, so no other unit is in its "
            "batches"
        )
    return _finding(
        "amplification", "one release", play_amplified(subject.algorithm, subject.settings.seed)
    )


def _noise(subject: AuditSubject) -> AuditFinding:
    """Tests the noise that leaves: how much there is, and whether any of it is used twice."""
    return _finding("noise", "a run", noises(subject.algorithm, subject.settings.seed))


def _finding(game: str, scope: str, check: RandomnessCheck) -> AuditFinding:
    detail = "; ".join(check.faults) or check.summary
    return AuditFinding(
        game, scope, None, None, None, None, BROKEN if check.faults else CONSISTENT, detail
    )


def _leaks(subject: AuditSubject) -> AuditFinding | str:
    """Looks for values that tell neighbours apart without noise."""
    violations = leaks(subject.algorithm, seed=subject.settings.seed)
    if violations is None:
        return (
            "the noise of this system is not added by its release, so neighbours cannot be coupled"
        )
    claimed_epsilon = subject.claimed_epsilon(1)
    before = replace(
        subject.algorithm, metric=None
    ).query_spending  # which is queries for after the last round, and not here
    proven_epsilon = subject.epsilon(add_all(subject.small.spending(1, subject.population), before))
    measured_epsilon = math.inf if violations else 0.0
    detail = (
        "; ".join(str(leak) for leak in violations)
        or "neighbours with the same noisy values show the same of everything else"
    )
    return AuditFinding(
        "leaks",
        "a run",
        claimed_epsilon,
        proven_epsilon,
        measured_epsilon,
        1.0,
        verdict(measured_epsilon, claimed_epsilon, proven_epsilon),
        detail,
    )


def _ledgers(subject: AuditSubject) -> AuditFinding:
    """Compares what was released with what was debited."""
    return _finding(
        "ledgers", "a run", check_ledgers(subject.algorithm, seed=subject.settings.seed)
    )


def _whole_run(subject: AuditSubject) -> AuditFinding | str:
    """Measures many runs with and without a canary."""
    if subject.algorithm.placement is NoisePlacement.ROUND_SUM:
        return NotApplicable("clients are protected, not samples")
    if subject.algorithm.schedule:
        return CHANGES
    measurement = many_runs(
        subject.algorithm,
        subject.settings.rounds,
        subject.settings.delta,
        subject.settings.runs,
        subject.confidence,
        subject.randomness,
    )
    return subject.judge(
        "whole run",
        f"{subject.settings.rounds} rounds",
        subject.settings.rounds * subject.steps,
        measurement,
    )


def _one_run(subject: AuditSubject) -> AuditFinding | str:
    """Measures one run with many canaries."""
    samples = subject.algorithm.samples
    if subject.algorithm.placement is NoisePlacement.ROUND_SUM:
        return NotApplicable("clients are protected, not samples")
    if (
        subject.algorithm.placement is not NoisePlacement.EVERY_STEP
        or samples is None
        or samples.sampling.constant_size
    ):
        return "it needs noise in every step, and samples that are drawn independently"
    if subject.algorithm.schedule:
        return CHANGES
    measurement = one_run(
        subject.algorithm,
        subject.settings.rounds,
        subject.settings.delta,
        subject.settings.canaries,
        subject.confidence,
        subject.randomness,
    )
    return subject.judge(
        "one run",
        f"{subject.settings.rounds} rounds",
        subject.settings.rounds * subject.steps,
        measurement,
    )


def _canary_clients(subject: AuditSubject) -> AuditFinding | str:
    """Estimates epsilon from canary clients."""
    if subject.algorithm.placement is not NoisePlacement.ROUND_SUM:
        return NotApplicable("samples are protected, or single uploads")
    if subject.algorithm.schedule or subject.algorithm.clients.whole_run:
        return CHANGES
    population = max(100, subject.population)
    measurement = canary_clients(
        subject.algorithm.clients,
        subject.settings.rounds,
        subject.settings.delta,
        subject.randomness,
        population,
    )
    claimed_epsilon, proven_epsilon = (
        subject.claimed_epsilon(subject.settings.rounds),
        subject.proven_epsilon(subject.settings.rounds),
    )
    scope = f"{subject.settings.rounds} rounds"
    return AuditFinding(
        "canary clients",
        scope,
        claimed_epsilon,
        proven_epsilon,
        measurement.epsilon,
        None,
        ESTIMATE,
        measurement.how,
    )


def _membership(subject: AuditSubject) -> AuditFinding:
    """Attacks a trained model by membership inference."""
    curves = attacks.membership(subject.of_rows, subject.settings.delta, subject.settings.seed)
    detail = "; ".join(roc.text for roc in curves)
    return AuditFinding(
        "membership", f"{attacks.ROUNDS} rounds", None, None, None, None, ESTIMATE, detail
    )


def _inversion(subject: AuditSubject) -> AuditFinding:
    """Rebuilds an image from an update."""
    rebuilt, detail = inversion.invert(subject.of_rows, subject.settings.seed), ""
    if subject.draw:
        detail = (
            "; pictures in "
            f"{subject.draw(rebuilt, f'{subject.algorithm.name}, {subject.algorithm.variant}')}"
        )
    return AuditFinding(
        "inversion", "one update", None, None, None, None, ESTIMATE, rebuilt.text + detail
    )


def unplayed_finding(game: str, why: str) -> AuditFinding:
    """Builds the finding of a game that was not played.

    Args:
        game: Name of the game.
        why: The reason, as the game returned it.

    Returns:
        The finding.
    """
    word = INAPPLICABLE if isinstance(why, NotApplicable) else UNTESTABLE
    return AuditFinding(game, "", None, None, None, None, word, str(why))


GAMES: dict[str, Callable[[AuditSubject], AuditFinding | str]] = {
    "one release": _one_release,
    "query": _query,
    "slope": _slope,
    "leaks": _leaks,
    "ledgers": _ledgers,
    "noise": _noise,
    "masks": _masks,
    "batches": _batches,
    "sensitivity": _sensitivity,
    "amplification": _amplification,
    "whole run": _whole_run,
    "one run": _one_run,
    "canary clients": _canary_clients,
    "membership": _membership,
    "inversion": _inversion,
}
RENAMED_GAMES = {"survey": "query", "books": "ledgers", "movement": "sensitivity"}
"""The new name for each name of version 0.1. The old names go in version 0.3."""

BOUNDING = ("one release", "query", "slope", "whole run", "one run")
"""Games whose bounds can fail by chance. They share the audit's error probability."""
