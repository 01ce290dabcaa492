"""An algorithm is a frozen composition of parts that know nothing of each other.

    local training x releases x steps x weights x server update [x schedule]

A *release* samples units, clips each unit's vector, sums, adds noise and divides by a fixed number
(`Release`). An algorithm has three: of the samples in a step, of a client's update, and of the
clients in a round. At most one of them has noise, and `placement` says which. From that follow the
unit that is protected, whose ledger pays, and whether the server is trusted.

DP-FedAvg (McMahan et al. 2018) reads like its pseudo-code:

    Algorithm(
        "dp-fedavg",
        LocalTraining(SGD(0.1)),                                # x_i <- x_i - eta grad
        FixedSteps(5),                                          # tau = 5
        clients=Release(Poisson(q), Flat(C), Gaussian(z)),   # sum_i clip(x_i - x) + N(0, (z C)^2 I)
    )

Nothing in the loop knows the name of a system. What cannot be together is refused in one place
(`server/rules.py`). The `with_...` and `for_...` methods return a fitted copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

from dpfl.client.disclosure_rules import DisclosureRules
from dpfl.client.noise_placement import NoisePlacement, PlacedRelease
from dpfl.client.task import LocalTraining
from dpfl.codec import part
from dpfl.errors import DpflError
from dpfl.models import Layout
from dpfl.privacy import Release, accountant
from dpfl.privacy.accounting.events import Event, EventCounts, add, gaussian
from dpfl.privacy.mechanisms.noise import Gaussian
from dpfl.privacy.mechanisms.noise_shares import NoiseShares
from dpfl.privacy.mechanisms.update_release import UpdateRelease
from dpfl.privacy.queries.columns import ColumnQuery
from dpfl.privacy.queries.mean import MeanQuery
from dpfl.privacy.queries.metric import MetricQuery
from dpfl.server.client_state import ClientState, ControlVariates, LastModels
from dpfl.server.rules import PERSONS, SECURE_NOISE, SECURE_SUMS, check
from dpfl.server.schedules import Schedule
from dpfl.server.steps.policy import StepPolicy
from dpfl.server.update import ServerUpdate
from dpfl.server.weights import UniformWeights, Weights

SAMPLE_UNITS = ("sample", "person")
_FIELDS = {
    NoisePlacement.EVERY_STEP: "samples",
    NoisePlacement.CLIENT_UPDATE: "updates",
    NoisePlacement.ROUND_SUM: "clients",
    NoisePlacement.NONE: "clients",
}


@part("claim")
@dataclass(frozen=True)
class Claim:
    """What the paper says of its own privacy: by an accountant, or by a formula in the number of
    releases.
    """

    text: str
    accountant: str | None = None
    formula: Callable[[int], float] | None = None

    def epsilon(self, stated: EventCounts, delta: float) -> float | None:
        """For releases as the paper counts them."""
        if self.formula:
            return self.formula(sum(stated.values()))
        return accountant(self.accountant).epsilon(stated, delta) if self.accountant else None


@part("algorithm")
@dataclass(frozen=True)
class Algorithm:
    """Local training x releases (in steps, on uploads, on the sum of a round) x steps x weights x
    server update.

    `leaks` names what a published system releases without any accounting: no epsilon is proven for
    it then. `controls` are those of SCAFFOLD. A `schedule` changes the private release from round
    to round. `centre` asks for the mean of the samples once, for models that subtract it, `columns`
    for the scales of a table, `metric` for how good the model is, at the end. Parts that cannot be
    together are refused (`server/rules.py`).
    """

    name: str
    local: LocalTraining
    steps: StepPolicy
    samples: Release | None = None
    clients: Release = field(default_factory=Release)
    weights: Weights = field(default_factory=UniformWeights)
    server: ServerUpdate = field(default_factory=ServerUpdate)
    variant: str = "sound"
    claim: Claim = Claim("no privacy is claimed")
    leaks: tuple[str, ...] = ()
    updates: UpdateRelease | None = None
    controls: bool = False
    schedule: Schedule | None = None
    centre: MeanQuery | None = None
    columns: ColumnQuery | None = None
    metric: MetricQuery | None = None
    sample_unit: str = "sample"
    """What a unit inside a client is: a "sample", or a "person" with all of their rows at that
    client.
    """

    def __post_init__(self) -> None:
        check(self)

    @cached_property
    def placed(self) -> PlacedRelease:
        """The one release that has noise, and where its noise is added."""
        return PlacedRelease.of(self.samples, self.updates, self.clients)

    @property
    def placement(self) -> NoisePlacement:
        """Where the noise is added."""
        return self.placed.placement

    @property
    def release(self) -> Release | None:
        """The release that has the noise; None where there is no noise."""
        return self.placed.release

    @property
    def unit(self) -> str:
        """Whom the noise protects: one "sample", one "person", one "client", or "none"."""
        return self.placed.unit(self.sample_unit)

    @property
    def noise_shares(self) -> NoiseShares | None:
        """How clients share the noise, where the server sees sums only."""
        return self.placed.noise_shares

    @property
    def ledger_per_client(self) -> bool:
        """Whether every client pays from a ledger of its own; else the federation has one."""
        return self.placed.client_pays

    @property
    def trusts_server(self) -> bool:
        """Whether the server sees single updates and adds the noise to their sum itself."""
        return self.placed.trusts_server

    def for_unit(self, unit: str) -> Algorithm:
        """For persons: their vectors are means over rows and clipped as a sample's is, so what is
        proven for one holds.

        Refused where nothing inside a client is protected, and for what a paper claims of samples.
        """
        if unit == self.sample_unit:
            return self
        if unit not in SAMPLE_UNITS:
            raise DpflError(
                "privacy.unit is 'sample' (one row) or 'person' (all rows of one at a client), "
                f"not {unit!r}."
            )
        check(self, rules=PERSONS)
        return replace(self, sample_unit=unit)

    @property
    def kept(self) -> ClientState | None:
        """What the server keeps for each client from round to round."""
        if self.controls:
            return ControlVariates()
        return LastModels() if self.local.objective.needs_last else None

    @property
    def policy(self) -> DisclosureRules:
        """What the owners of the data must agree to: that the server is trusted, or that no noise
        hides them, or not all.
        """
        return DisclosureRules(
            self.trusts_server,
            bare=self.placement is NoisePlacement.NONE,
            raw=bool(self.leaks),
            sums=self.noise_shares is not None,
        )

    @property
    def asks_public_clips(self) -> bool:
        """Whether a clip follows clients whose data is public."""
        return any(
            release and release.clip.adapts_to == "public"
            for release in (self.samples, self.clients)
        )

    def for_client_size(self, samples: int) -> Algorithm:
        """As it is for a client that declared so many samples: noise on uploads may be each
        client's own, and its claim.
        """
        if self.updates is None or self.updates.by_samples is None:
            return self
        own = self.updates.by_samples.for_size(samples)
        return replace(
            self,
            updates=self.updates.with_client_noise(own),
            claim=replace(self.claim, formula=own.claimed),
        )

    def with_secure_sums(self, shares: NoiseShares) -> Algorithm:
        """Returns the algorithm with noise that clients share under secure aggregation.

        Args:
            shares: How many clients are in every sum, and how many of them may collude.

        Raises:
            DpflError: There is no proof for this composition.
        """
        check(self, rules=SECURE_SUMS)
        assert self.release is not None
        # A release of clients may have shares without a proof, which these replace.
        of_clients = self.placement is NoisePlacement.ROUND_SUM
        shared_by = None if of_clients else self.release.shared_by
        return self.with_release(replace(self.release, noise_shares=shares, shared_by=shared_by))

    def with_release(self, release: Release) -> Algorithm:
        """Returns the algorithm with another release in the place of the one that has noise.

        Args:
            release: A release for the same place.
        """
        return replace(self, **{_FIELDS[self.placement]: release})  # type: ignore[arg-type]

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

    def with_noise(self, multiplier: float) -> Algorithm:
        """Returns the algorithm with Gaussian noise, or noise of its own kind, of this size.

        Args:
            multiplier: The noise over the sensitivity of its release.
        """
        if self.placement is NoisePlacement.CLIENT_UPDATE:
            return replace(self, updates=replace(self.updates, noise=Gaussian(multiplier)))  # type: ignore[type-var]
        return self.with_release((self.release or self.clients).with_noise(multiplier))

    def with_secure_noise(self) -> Algorithm:
        """Returns the algorithm with noise that withstands attacks on floating-point arithmetic.

        Raises:
            DpflError: Some of the noise has no such form.
        """
        check(self, rules=SECURE_NOISE)
        assert self.release is not None
        secure = replace(
            self,
            centre=self.centre and self.centre.with_secure_noise(),
            columns=self.columns and self.columns.with_secure_noise(),
            metric=self.metric and self.metric.with_secure_noise(),
            weights=self.weights.with_secure_noise(),
        )
        return secure.with_release(self.release.with_secure_noise())

    def for_model(self, layout: Layout) -> Algorithm:
        """For a model: releases of Haar coefficients have to know where its parameters end, and not
        every model is centred.
        """
        ends = (*layout.offsets[1:], layout.size)
        samples = (
            self.samples.for_model([end for end in ends if end <= layout.trainable])
            if self.samples
            else None
        )
        centre, columns = (
            self.centre if layout.centre else None,
            self.columns if layout.paid_scales else None,
        )
        return replace(
            self,
            samples=samples,
            clients=self.clients.for_model(ends),
            centre=centre,
            columns=columns,
        )

    def for_rounds(self, rounds: int | None, population: int) -> Algorithm:
        """For a run of this many rounds: a schedule has to know them, and noise that is taken back
        later.
        """
        if self.schedule is None and not self.clients.whole_run:
            return self
        if rounds is None:
            raise DpflError(
                "A release that changes from round to round is planned for all of them; give "
                "budget.rounds."
            )
        schedule = self.schedule.for_rounds(rounds) if self.schedule else None
        return replace(self, schedule=schedule, clients=self.clients.for_rounds(rounds, population))

    def event(self, population: int) -> Event:
        """What one release costs in truth: it has no guarantee where raw values come with it."""
        assert self.release is not None
        return gaussian(0.0) if self.steps.asks_raw else self.release.event(population)

    def spending(self, releases: int, population: int) -> EventCounts:
        """What so many releases cost, at most, from the first on."""
        return (
            {self.event(population): releases}
            if self.schedule is None
            else self._scheduled(releases, population)
        )

    def stated(self, releases: int, population: int) -> EventCounts:
        """What the paper counts them as."""
        return (
            {self.stated_event(population): releases}
            if self.schedule is None
            else self._scheduled(releases, population)
        )

    def _scheduled(self, releases: int, population: int) -> EventCounts:
        assert self.schedule is not None
        assert self.release is not None
        each, spent = self.releases_in(1), dict[Event, int]()
        for number, made in enumerate(range(0, releases, each)):
            event = self.schedule.least(self.release, number).event(population)
            spent = add(spent, event, min(each, releases - made))
        return spent

    @property
    def before(self) -> EventCounts:
        """What is released once, before the first round, and what has to be left for a metric after
        the last.
        """
        surveys = (self.weights.query, self.centre, self.columns, self.metric)
        asked = [survey for survey in surveys if survey and not survey.trusted]
        spent: EventCounts = {}
        for survey in asked:
            spent = add(spent, survey.event, 1)
        return spent

    @property
    def questions(self) -> tuple[str, ...]:
        """What clients are asked beside their updates, in words."""
        said = []
        if self.columns:
            said.append(
                f"the scales of {len(self.columns.places) + len(self.columns.binned)} columns, "
                "before the first round"
            )
        if self.metric:
            said.append(
                "how good the model is, after the last round: the metric is noisy, and its noise "
                "is counted here"
            )
        return tuple(said)

    def stated_event(self, population: int) -> Event:
        """What the paper counts it as."""
        assert self.release is not None
        return self.release.stated_event(population)

    def releases_in(self, rounds: int) -> int:
        """How often the private release is made in this many rounds: every step, once a round, or
        once for all of them.
        """
        if self.clients.whole_run:
            return min(rounds, 1)
        return self.steps.total(rounds) if self.placement is NoisePlacement.EVERY_STEP else rounds

    def releases_made(self, rounds: int, iterations: int) -> int:
        """How often it was made in rounds that took so many iterations."""
        return (
            iterations + self.steps.extra * rounds
            if self.placement is NoisePlacement.EVERY_STEP
            else self.releases_in(rounds)
        )
