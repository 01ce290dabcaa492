"""The games by name. Each says what it found of a system, or why it cannot be played on it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

from dpfl.algorithms import Algorithm
from dpfl.audit.amplification.game import play_amplified
from dpfl.audit.attacks import attacks, inversion
from dpfl.audit.bounds import MeasuredEpsilon
from dpfl.audit.canary_clients import canary_clients
from dpfl.audit.leaks import leaks
from dpfl.audit.ledger_check import books
from dpfl.audit.mask_checks import masks
from dpfl.audit.noise_check import noises
from dpfl.audit.one_release import ENDS, NAMES, one_release, population_for
from dpfl.audit.query_games import one_answer, one_slope
from dpfl.audit.randomness_checks import RandomnessCheck
from dpfl.audit.report import (
    BROKEN,
    CONSISTENT,
    ESTIMATE,
    INAPPLICABLE,
    UNTESTABLE,
    AuditFinding,
    verdict,
)
from dpfl.audit.sampling_checks import batches, by_chance, cohorts, coins
from dpfl.audit.sensitivity_check import movement
from dpfl.audit.whole_run import many_runs, one_run
from dpfl.client.noise_placement import NoisePlacement
from dpfl.models import Layout
from dpfl.privacy import FixedSize, Keyed, Randomness, Release, accountant
from dpfl.privacy.accounting.accountant import default_accountant
from dpfl.privacy.accounting.events import EventCounts, add_all
from dpfl.privacy.queries.answers import AnyQuery
from dpfl.server.steps.policy import FixedSteps

SMALL = Layout(
    NAMES,
    tuple((end - start,) for start, end in zip((0, *ENDS), ENDS, strict=False)),
    (0, *ENDS[:-1]),
    16,
    16,
)
CHANGES = "its noise changes from round to round, and this game has the same in all"
SLOPES = 500
LITTLE_NOISE = 0.1
"""Below this multiplier epsilon is so large that RDP, which is quick there, says enough."""


class NotApplicable(str):
    """Why a game has nothing to be played on in a system; any other reason is one why it could not
    be played.
    """


@dataclass(frozen=True)
class AuditSettings:
    """What is audited, and how hard: trials of one release, whole runs, their rounds, canaries of
    one run.
    """

    algorithm: Algorithm
    delta: float = 1e-5
    confidence: float = 0.95
    trials: int = 20_000
    runs: int = 300
    rounds: int = 4
    canaries: int = 1000
    seed: int = 0
    draw: inversion.Draw | None = None
    randomness: Randomness = field(default_factory=lambda: Keyed(0))

    @cached_property
    def small(self) -> Algorithm:
        """The system for a model of sixteen parameters, on which the games about releases are
        played.
        """
        return self.algorithm.for_model(SMALL)

    @property
    def of_rows(self) -> Algorithm:
        """For attacks on single images, of which each stands for a person."""
        return replace(self.algorithm, sample_unit="sample")

    @cached_property
    def population(self) -> int:
        release = self.algorithm.release
        return population_for(release) if release else 1

    @property
    def steps(self) -> int:
        """Releases of one round in the games of whole runs."""
        policy = self.algorithm.steps
        return (
            policy.tau
            if self.algorithm.placement is NoisePlacement.EVERY_STEP
            and isinstance(policy, FixedSteps)
            else 1
        )

    def claimed(self, releases: int) -> float | None:
        return self.small.claim.epsilon(self.small.stated(releases, self.population), self.delta)

    def proven(self, releases: int) -> float:
        return self.epsilon(self.small.spending(releases, self.population))

    @property
    def release(self) -> Release:
        """The first one, where they change from round to round."""
        release, schedule = self.algorithm.release, self.algorithm.schedule
        assert release is not None
        return schedule.now(release, 0, {}) if schedule else release

    def epsilon(self, events: EventCounts) -> float:
        release = self.small.release
        little = release is not None and release.noise_multiplier < LITTLE_NOISE
        return accountant("rdp" if little else default_accountant(next(iter(events)))).epsilon(
            events, self.delta
        )

    def bounded(
        self, game: str, scope: str, releases: int, measured: MeasuredEpsilon
    ) -> AuditFinding:
        claimed, proven = self.claimed(releases), self.proven(releases)
        found = verdict(measured.epsilon, claimed, proven)
        return AuditFinding(
            game, scope, claimed, proven, measured.epsilon, measured.confidence, found, measured.how
        )


def play_one_release(setting: AuditSettings) -> AuditFinding:
    release = setting.release
    measured = one_release(
        release,
        setting.delta,
        setting.trials,
        setting.confidence,
        setting.randomness,
        setting.population,
    )
    scope = f"{setting.rounds} rounds" if release.whole_run else "one release"
    return setting.bounded("one release", scope, 1, measured)


def play_survey(setting: AuditSettings) -> AuditFinding | str:
    """Of several the one of which the most was measured, for what is proven of it."""
    made = setting.algorithm
    surveys: tuple[AnyQuery | None, ...] = (
        made.centre,
        made.columns,
        made.metric,
        made.weights.query,
    )
    asked = [survey for survey in surveys if survey and survey.noise_multiplier]
    if not asked:
        return NotApplicable("clients are asked for nothing, with noise, beside their updates")
    each = 1 - (1 - setting.confidence) / len(asked)
    found = []
    for survey in asked:
        persons = made.unit == "person"
        measured = one_answer(
            survey,
            setting.delta,
            setting.trials // 10,
            each,
            setting.randomness,
            persons,
            made.noise_shares,
        )
        found.append(_paid("survey", "one answer", setting.epsilon({survey.event: 1}), measured))
    return max(found, key=lambda finding: (finding.measured or 0.0) / (finding.proven or 1.0))


def play_slope(setting: AuditSettings) -> AuditFinding | str:
    samples = setting.algorithm.samples
    if not setting.algorithm.steps.extra or samples is None:
        return NotApplicable("clients are asked for no slope")
    trials = min(setting.trials // 10, SLOPES)
    measured = one_slope(
        setting.algorithm, setting.delta, trials, setting.confidence, setting.randomness
    )
    return _paid(
        "slope", "one slope", setting.epsilon({samples.event(setting.population): 1}), measured
    )


def _paid(game: str, scope: str, proven: float, measured: MeasuredEpsilon) -> AuditFinding:
    """Of what no paper claims anything."""
    found = verdict(measured.epsilon, None, proven)
    return AuditFinding(
        game, scope, None, proven, measured.epsilon, measured.confidence, found, measured.how
    )


def play_batches(setting: AuditSettings) -> AuditFinding | str:
    made = setting.algorithm
    if (
        made.placement is NoisePlacement.EVERY_STEP
        and made.samples
        and by_chance(made.samples.sampling)
    ):
        return _checked("batches", "a run", batches(made, setting.seed))
    if (
        made.placement is NoisePlacement.ROUND_SUM
        and by_chance(made.clients.sampling)
        and made.noise_shares
    ):
        return _checked("batches", "a run", coins(made, setting.seed))
    if made.placement is NoisePlacement.ROUND_SUM and by_chance(made.clients.sampling):
        return _checked("batches", "a run", cohorts(made.clients.sampling, setting.seed))
    return NotApplicable("nothing is gained by chance: everyone takes part, every time or in turns")


def play_masks(setting: AuditSettings) -> AuditFinding | str:
    sums = setting.algorithm.noise_shares
    return (
        _checked("masks", "a run", masks(sums))
        if sums
        else NotApplicable("the server sees every client by itself")
    )


def play_movement(setting: AuditSettings) -> AuditFinding:
    return _checked("movement", "one release", movement(setting.algorithm, setting.seed))


def play_amplification(setting: AuditSettings) -> AuditFinding | str:
    if setting.algorithm.placement is not NoisePlacement.EVERY_STEP:
        return (
            "a client's update is computed from its own data alone, so no other unit is in its "
            "batches"
        )
    return _checked("amplification", "one release", play_amplified(setting.algorithm, setting.seed))


def play_noise(setting: AuditSettings) -> AuditFinding:
    return _checked("noise", "a run", noises(setting.algorithm, setting.seed))


def _checked(game: str, scope: str, found: RandomnessCheck) -> AuditFinding:
    detail = "; ".join(found.faults) or found.seen
    return AuditFinding(
        game, scope, None, None, None, None, BROKEN if found.faults else CONSISTENT, detail
    )


def play_leaks(setting: AuditSettings) -> AuditFinding | str:
    found = leaks(setting.algorithm, seed=setting.seed)
    if found is None:
        return (
            "the noise of this system is not added by its release, so neighbours cannot be coupled"
        )
    claimed = setting.claimed(1)
    before = replace(
        setting.algorithm, metric=None
    ).before  # which is asked for after the last round, and not here
    proven = setting.epsilon(add_all(setting.small.spending(1, setting.population), before))
    measured = math.inf if found else 0.0
    detail = (
        "; ".join(str(leak) for leak in found)
        or "neighbours with the same noisy values show the same of everything else"
    )
    return AuditFinding(
        "leaks", "a run", claimed, proven, measured, 1.0, verdict(measured, claimed, proven), detail
    )


def play_books(setting: AuditSettings) -> AuditFinding:
    return _checked("books", "a run", books(setting.algorithm, seed=setting.seed))


def play_whole_run(setting: AuditSettings) -> AuditFinding | str:
    if setting.algorithm.placement is NoisePlacement.ROUND_SUM:
        return NotApplicable("clients are protected, not samples")
    if setting.algorithm.schedule:
        return CHANGES
    measured = many_runs(
        setting.algorithm,
        setting.rounds,
        setting.delta,
        setting.runs,
        setting.confidence,
        setting.randomness,
    )
    return setting.bounded(
        "whole run", f"{setting.rounds} rounds", setting.rounds * setting.steps, measured
    )


def play_one_run(setting: AuditSettings) -> AuditFinding | str:
    samples = setting.algorithm.samples
    if setting.algorithm.placement is NoisePlacement.ROUND_SUM:
        return NotApplicable("clients are protected, not samples")
    if (
        setting.algorithm.placement is not NoisePlacement.EVERY_STEP
        or samples is None
        or isinstance(samples.sampling, FixedSize)
    ):
        return "it needs noise in steps, and samples that are in or out by themselves"
    if setting.algorithm.schedule:
        return CHANGES
    measured = one_run(
        setting.algorithm,
        setting.rounds,
        setting.delta,
        setting.canaries,
        setting.confidence,
        setting.randomness,
    )
    return setting.bounded(
        "one run", f"{setting.rounds} rounds", setting.rounds * setting.steps, measured
    )


def play_canary_clients(setting: AuditSettings) -> AuditFinding | str:
    if setting.algorithm.placement is not NoisePlacement.ROUND_SUM:
        return NotApplicable("samples are protected, or single uploads")
    if setting.algorithm.schedule or setting.algorithm.clients.whole_run:
        return CHANGES
    population = max(100, setting.population)
    measured = canary_clients(
        setting.algorithm.clients, setting.rounds, setting.delta, setting.randomness, population
    )
    claimed, proven = setting.claimed(setting.rounds), setting.proven(setting.rounds)
    scope = f"{setting.rounds} rounds"
    return AuditFinding(
        "canary clients", scope, claimed, proven, measured.epsilon, None, ESTIMATE, measured.how
    )


def play_membership(setting: AuditSettings) -> AuditFinding:
    found = attacks.membership(setting.of_rows, setting.delta, setting.seed)
    detail = "; ".join(roc.text for roc in found)
    return AuditFinding(
        "membership", f"{attacks.ROUNDS} rounds", None, None, None, None, ESTIMATE, detail
    )


def play_inversion(setting: AuditSettings) -> AuditFinding:
    found, detail = inversion.invert(setting.of_rows, setting.seed), ""
    if setting.draw:
        detail = (
            "; pictures in "
            f"{setting.draw(found, f'{setting.algorithm.name}, {setting.algorithm.variant}')}"
        )
    return AuditFinding(
        "inversion", "one update", None, None, None, None, ESTIMATE, found.text + detail
    )


def unplayed_findings(game: str, why: str) -> AuditFinding:
    word = INAPPLICABLE if isinstance(why, NotApplicable) else UNTESTABLE
    return AuditFinding(game, "", None, None, None, None, word, str(why))


GAMES: dict[str, Callable[[AuditSettings], AuditFinding | str]] = {
    "one release": play_one_release,
    "survey": play_survey,
    "slope": play_slope,
    "leaks": play_leaks,
    "books": play_books,
    "noise": play_noise,
    "masks": play_masks,
    "batches": play_batches,
    "movement": play_movement,
    "amplification": play_amplification,
    "whole run": play_whole_run,
    "one run": play_one_run,
    "canary clients": play_canary_clients,
    "membership": play_membership,
    "inversion": play_inversion,
}
BOUNDING = ("one release", "survey", "slope", "whole run", "one run")
"""Games whose bounds can go wrong by chance; they share what may."""
