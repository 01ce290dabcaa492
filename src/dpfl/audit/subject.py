"""The subject of an audit: the system, how hard the audit tries, and what is claimed and proven."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from dpfl.algorithms import Algorithm
from dpfl.audit.attacks import inversion
from dpfl.audit.bounds import MeasuredEpsilon
from dpfl.audit.measurements.one_release import ENDS, NAMES, population_for
from dpfl.audit.report import AuditFinding, verdict
from dpfl.client.noise_placement import NoisePlacement
from dpfl.errors import DpflError
from dpfl.models import Layout
from dpfl.privacy import Keyed, Randomness, Release, accountant
from dpfl.privacy.accounting.accountant import default_accountant
from dpfl.privacy.accounting.events import EventCounts

MAX_TRIALS = 10_000_000
SMALL = Layout(
    NAMES,
    tuple((end - start,) for start, end in zip((0, *ENDS), ENDS, strict=False)),
    (0, *ENDS[:-1]),
    16,
    16,
)
LITTLE_NOISE = 0.1
"""Below this multiplier epsilon is so large that RDP, which is quick there, is exact enough."""


@dataclass(frozen=True)
class AuditSettings:
    """The effort of an audit. More trials give larger lower bounds and take longer.

    Attributes:
        delta: Delta at which epsilon is claimed, proven and measured.
        confidence: Probability with which all lower bounds of the audit hold together.
        trials: Draws with and without the canary, in games about one release.
        runs: Runs with and without the canary, in the game of whole runs.
        rounds: Rounds of each of these runs.
        canaries: Canaries in the game of one run.
        seed: Seed of the audit. The same seed gives the same audit.
    """

    delta: float = 1e-5
    confidence: float = 0.95
    trials: int = 20_000
    runs: int = 300
    rounds: int = 4
    canaries: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.5 <= self.confidence < 1 or not 0 < self.delta < 1:
            raise DpflError(
                "An audit needs a confidence from 0.5 to below 1 and a delta inside (0, 1), not "
                f"{self.confidence}, {self.delta}."
            )
        counts = (self.trials, self.runs, self.canaries)
        if min(counts) < 100 or max(counts) > MAX_TRIALS or self.rounds < 1:
            raise DpflError(
                f"An audit needs 100 to {MAX_TRIALS:,} trials, runs and canaries, and at least 1 "
                "round."
            )
        if not 0 <= self.seed < 2**63:
            raise DpflError(f"A seed is a whole number from 0 to 2^63 - 1, not {self.seed}.")


@dataclass(frozen=True)
class AuditSubject:
    """The system under audit, and what its games share.

    Attributes:
        algorithm: The system, with its noise.
        settings: How hard the audit tries.
        confidence: Confidence of each single bound.
        draw: Draws a picture of a reconstructed image; None for no picture.
        randomness: Source of the games' random draws.
    """

    algorithm: Algorithm
    settings: AuditSettings = field(default_factory=AuditSettings)
    confidence: float = 0.95
    draw: inversion.Draw | None = None
    randomness: Randomness = field(default_factory=lambda: Keyed(0))

    @cached_property
    def small(self) -> Algorithm:
        """The system for a model of sixteen parameters, for games about single releases."""
        return self.algorithm.for_model(SMALL)

    @property
    def of_rows(self) -> Algorithm:
        """The system for attacks on single images, each of which stands for a person."""
        return replace(self.algorithm, sample_unit="sample")

    @cached_property
    def population(self) -> int:
        """Number of units from which the release samples."""
        release = self.algorithm.release
        return population_for(release) if release else 1

    @property
    def steps(self) -> int:
        """Releases per round in the games of whole runs."""
        policy = self.algorithm.steps
        in_steps = self.algorithm.placement is NoisePlacement.EVERY_STEP
        return policy.total(1) if in_steps and not policy.adaptive else 1

    @property
    def release(self) -> Release:
        """The release with noise; the first one, where they change from round to round."""
        release, schedule = self.algorithm.release, self.algorithm.schedule
        assert release is not None
        return schedule.now(release, 0, {}) if schedule else release

    def claimed_epsilon(self, releases: int) -> float | None:
        """Computes what the system claims.

        Args:
            releases: Number of releases.

        Returns:
            The claimed epsilon; None if it claims nothing.
        """
        events = self.small.stated_spending(releases, self.population)
        return self.small.claim.epsilon(events, self.settings.delta)

    def proven_epsilon(self, releases: int) -> float:
        """Computes what is proven.

        Args:
            releases: Number of releases.

        Returns:
            The proven epsilon.
        """
        return self.epsilon(self.small.spending(releases, self.population))

    def epsilon(self, events: EventCounts) -> float:
        """Computes the proven epsilon of events.

        Args:
            events: The events.

        Returns:
            Their epsilon at the audit's delta.
        """
        release = self.small.release
        little = release is not None and release.noise_multiplier < LITTLE_NOISE
        name = "rdp" if little else default_accountant(next(iter(events)))
        return accountant(name).epsilon(events, self.settings.delta)

    def judge(
        self, game: str, scope: str, releases: int, measurement: MeasuredEpsilon
    ) -> AuditFinding:
        """Judges a lower bound against what is claimed and what is proven.

        Args:
            game: Name of the game.
            scope: What was released: one release, or some rounds.
            releases: Number of releases in it.
            measurement: The lower bound.

        Returns:
            The finding.
        """
        claimed_epsilon, proven_epsilon = (
            self.claimed_epsilon(releases),
            self.proven_epsilon(releases),
        )
        word = verdict(measurement.epsilon, claimed_epsilon, proven_epsilon)
        return AuditFinding(
            game,
            scope,
            claimed_epsilon,
            proven_epsilon,
            measurement.epsilon,
            measurement.confidence,
            word,
            measurement.how,
        )
