"""The parts of an algorithm, and what follows from them: whom the noise protects, who pays for it,
and what it costs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from dpfl.client.noise_placement import NoisePlacement, PlacedRelease
from dpfl.client.task import LocalTraining
from dpfl.privacy import Release
from dpfl.privacy.accounting.events import Event, EventCounts, add, gaussian
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.privacy.mechanisms.update_release import UpdateRelease
from dpfl.privacy.queries.columns import ColumnQuery
from dpfl.privacy.queries.mean import MeanQuery
from dpfl.privacy.queries.metric import MetricQuery
from dpfl.server.aggregation.update import ServerUpdate
from dpfl.server.aggregation.weights import UniformWeights, Weights
from dpfl.server.claim import NO_CLAIM, Claim
from dpfl.server.client_state import ClientState, ControlVariates, LastModels
from dpfl.server.schedules import Schedule
from dpfl.server.steps.policy import StepPolicy


@dataclass(frozen=True)
class Composition:
    """The parts of an algorithm.

    Attributes:
        name: The name of the system.
        local: How clients train.
        steps: How many local steps each round has.
        samples: The release of the samples in a step; None where samples are not clipped.
        clients: The release of the clients in a round.
        weights: How much each client counts.
        server: The server's step.
        variant: "sound", or "published" for what a paper prints.
        claim: What the paper says of its own privacy.
        leaks: What a published system releases without any accounting. If there is something, no
            epsilon is proven.
        updates: The release of a client's whole update; None where it is not one.
        controls: Whether clients correct their gradients by SCAFFOLD's control variates.
        schedule: Changes the private release from round to round.
        centre: Asks for the mean of the samples once, for models that subtract it.
        columns: Asks for the scales of a table's columns once.
        metric: Asks how good the model is, after the last round.
        sample_unit: What a unit inside a client is: a "sample", or a "person" with all of their
            rows at that client.
    """

    name: str
    local: LocalTraining
    steps: StepPolicy
    samples: Release | None = None
    clients: Release = field(default_factory=Release)
    weights: Weights = field(default_factory=UniformWeights)
    server: ServerUpdate = field(default_factory=ServerUpdate)
    variant: str = "sound"
    claim: Claim = NO_CLAIM
    leaks: tuple[str, ...] = ()
    updates: UpdateRelease | None = None
    controls: bool = False
    schedule: Schedule | None = None
    centre: MeanQuery | None = None
    columns: ColumnQuery | None = None
    metric: MetricQuery | None = None
    sample_unit: str = "sample"

    @cached_property
    def placed_release(self) -> PlacedRelease:
        """The one release that has noise, and where its noise is added."""
        return PlacedRelease.of(self.samples, self.updates, self.clients)

    @property
    def placement(self) -> NoisePlacement:
        """Where the noise is added."""
        return self.placed_release.placement

    @property
    def release(self) -> Release | None:
        """The release that has the noise; None where there is no noise."""
        return self.placed_release.release

    @property
    def unit(self) -> str:
        """Whom the noise protects: one "sample", one "person", one "client", or "none"."""
        return self.placed_release.unit(self.sample_unit)

    @property
    def has_noise(self) -> bool:
        """Whether there is noise, and so anybody who is protected."""
        return self.placed_release.has_noise

    @property
    def protects_client(self) -> bool:
        """Whether the noise is for all that a client has, and not for one unit inside it."""
        return self.placed_release.protects_client

    @property
    def sound(self) -> bool:
        """Whether it is the variant whose guarantee is proven, and not the one that a paper
        prints.
        """
        return self.variant == "sound"

    @property
    def noise_shares(self) -> NoiseShares | None:
        """How clients share the noise, where the server sees sums only."""
        return self.placed_release.noise_shares

    @property
    def ledger_per_client(self) -> bool:
        """Whether every client pays from a ledger of its own; else the federation has one."""
        return self.placed_release.client_pays

    @property
    def trusts_server(self) -> bool:
        """Whether the server sees single updates and adds the noise to their sum itself."""
        return self.placed_release.trusts_server

    @property
    def client_state(self) -> ClientState | None:
        """What the server keeps for each client from round to round; None for nothing."""
        if self.controls:
            return ControlVariates()
        return LastModels() if self.local.objective.needs_last else None

    @property
    def asks_public_clips(self) -> bool:
        """Whether a clip follows clients whose data is public."""
        return any(
            release and release.clip.follows_public for release in (self.samples, self.clients)
        )

    @property
    def noise(self) -> str:
        """What kind of noise it is: "floating-point", "shared" (whole numbers), "secure" (all of
        it), or "none".
        """
        if self.release is None:
            return "none"
        if self.noise_shares:
            return "shared"
        return "secure" if self.release.secure else "floating-point"

    def event(self, population: int) -> Event:
        """Describes what one private release costs in truth.

        Args:
            population: How many units the release is about.

        Returns:
            The event. It has no guarantee where clients send raw values beside the release.
        """
        assert self.release is not None
        return gaussian(0.0) if self.steps.asks_raw else self.release.event(population)

    def stated_event(self, population: int) -> Event:
        """Describes what the paper counts one private release as.

        Args:
            population: How many units the release is about.

        Returns:
            The event.
        """
        assert self.release is not None
        return self.release.stated_event(population)

    def spending(self, releases: int, population: int) -> EventCounts:
        """Counts what private releases cost in truth, at most.

        Args:
            releases: How many releases there are, from the first of the run on.
            population: How many units a release is about.

        Returns:
            The events and their numbers.
        """
        if self.schedule is None:
            return {self.event(population): releases}
        return self._scheduled_events(releases, population)

    def stated_spending(self, releases: int, population: int) -> EventCounts:
        """Counts private releases as the paper does.

        Args:
            releases: How many releases there are, from the first of the run on.
            population: How many units a release is about.

        Returns:
            The events and their numbers.
        """
        if self.schedule is None:
            return {self.stated_event(population): releases}
        return self._scheduled_events(releases, population)

    def _scheduled_events(self, releases: int, population: int) -> EventCounts:
        assert self.schedule is not None
        assert self.release is not None
        per_round, events = self.releases_in(1), dict[Event, int]()
        for round, first in enumerate(range(0, releases, per_round)):
            event = self.schedule.least(self.release, round).event(population)
            events = add(events, event, min(per_round, releases - first))
        return events

    @property
    def query_spending(self) -> EventCounts:
        """What is released once before the first round, and what a metric after the last round
        needs.
        """
        queries = (self.weights.query, self.centre, self.columns, self.metric)
        events: EventCounts = {}
        for query in queries:
            if query and not query.trusted:
                events = add(events, query.event, 1)
        return events

    def releases_in(self, rounds: int) -> int:
        """Counts private releases: one per step, one per round, or one for all rounds.

        Args:
            rounds: A number of rounds, from the first on.

        Returns:
            The most releases in these rounds.
        """
        if self.clients.whole_run:
            return min(rounds, 1)
        return self.steps.total(rounds) if self.placement is NoisePlacement.EVERY_STEP else rounds

    def releases_made(self, rounds: int, iterations: int) -> int:
        """Counts the private releases of rounds that are over.

        Args:
            rounds: How many rounds there were.
            iterations: How many local steps they had.

        Returns:
            The number of releases.
        """
        return (
            iterations + self.steps.paid_slopes * rounds
            if self.placement is NoisePlacement.EVERY_STEP
            else self.releases_in(rounds)
        )
