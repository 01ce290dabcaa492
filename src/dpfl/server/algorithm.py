"""An algorithm: parts that know nothing of each other, put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from dpfl.client.disclosure_rules import DisclosureRules
from dpfl.client.task import LocalTraining
from dpfl.codec import part
from dpfl.errors import DpflError
from dpfl.models import Layout
from dpfl.privacy import Release, accountant
from dpfl.privacy.accounting.events import Event, EventCounts, add, gaussian
from dpfl.privacy.mechanisms.noise import Gaussian
from dpfl.privacy.mechanisms.noise_shares import NoiseShares
from dpfl.privacy.mechanisms.release import UpdateRelease
from dpfl.privacy.queries.columns import ColumnQuery
from dpfl.privacy.queries.mean import MeanQuery
from dpfl.privacy.queries.metric import MetricQuery
from dpfl.server.client_state import ClientState, ControlVariates, LastModels
from dpfl.server.rules import check
from dpfl.server.schedules import Schedule
from dpfl.server.steps.policy import StepPolicy
from dpfl.server.update import ServerUpdate
from dpfl.server.weights import UniformWeights, Weights

ONES = ("sample", "person")


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

    @property
    def scale(self) -> str:
        """Where the noise is: in every `step` at a client, on its `upload`, on the sum of a
        `round`, or nowhere (`none`).
        """
        for name, release in (
            ("step", self.samples),
            ("upload", self.updates),
            ("round", self.clients),
        ):
            if release and release.private:
                return name
        return "none"

    @property
    def unit(self) -> str:
        """Whom the noise protects: one sample, one person, one client (everything that it has), or
        nobody.
        """
        upload = (
            "client" if self.updates and self.updates.protects == "client" else self.sample_unit
        )
        return {"step": self.sample_unit, "upload": upload, "round": "client", "none": "none"}[
            self.scale
        ]

    def for_unit(self, unit: str) -> Algorithm:
        """For persons: their vectors are means over rows and clipped as a sample's is, so what is
        proven for one holds.

        Refused where nothing inside a client is protected, and for what a paper claims of samples.
        """
        if unit == self.sample_unit:
            return self
        if unit not in ONES:
            raise DpflError(
                "privacy.unit is 'sample' (one row) or 'person' (all rows of one at a client), "
                f"not {unit!r}."
            )
        if self.unit == "client":
            raise DpflError(
                f"{self.name} protects whole clients, and so every person there: leave "
                "privacy.unit out."
            )
        if self.unit == "none":
            raise DpflError(
                f"{self.name} adds no noise, so it protects nobody: leave privacy.unit out, or use "
                "another system."
            )
        if self.variant == "published":
            raise DpflError(
                f"What is published of {self.name} is for samples: set algorithm.variant = 'sound' "
                "for persons."
            )
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
        trusted = self.scale == "round" and not self.noise_shares
        return DisclosureRules(
            trusted,
            bare=self.scale == "none",
            raw=bool(self.leaks),
            sums=self.noise_shares is not None,
        )

    @property
    def ledger_per_client(self) -> bool:
        """Whether every client pays from a ledger of its own; else the federation has one."""
        return self.scale in ("step", "upload") or self.noise_shares is not None

    @property
    def asks_public_clips(self) -> bool:
        """Whether a clip follows clients whose data is public."""
        return any(
            release and release.clip.adapts_to == "public"
            for release in (self.samples, self.clients)
        )

    @property
    def release(self) -> Release | None:
        """The release that carries the noise."""
        return {"step": self.samples, "upload": self.updates, "round": self.clients, "none": None}[
            self.scale
        ]

    @property
    def noise_shares(self) -> NoiseShares | None:
        """Who shares the noise, where the server sees sums only."""
        return self.release.noise_shares if self.release else None

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

    def with_secure_sums(self, shared: NoiseShares) -> Algorithm:
        """With noise that clients share under secure aggregation; refused where there is no proof
        for that.
        """
        if self.scale not in ("step", "round"):
            raise DpflError(
                f"{self.name} has no noise in single steps or on the sum of a round, which clients "
                "could share; set "
                "privacy.aggregation = 'plain'."
            )
        if self.scale == "step" and self.samples:
            return replace(self, samples=replace(self.samples, noise_shares=shared))
        return replace(self, clients=replace(self.clients, noise_shares=shared, shared_by=None))

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
        if self.scale == "step" and self.samples:
            return replace(self, samples=self.samples.with_noise(multiplier))
        if self.scale == "upload" and self.updates:
            return replace(self, updates=replace(self.updates, noise=Gaussian(multiplier)))
        return replace(self, clients=self.clients.with_noise(multiplier))

    def with_secure_noise(self) -> Algorithm:
        """With noise against attacks on floating-point arithmetic; refused where some of the noise
        has no such form.
        """
        field = {"step": "samples", "upload": "updates", "round": "clients"}.get(self.scale)
        if self.schedule and self.schedule.follows:
            raise DpflError(
                "Noise that follows what was released has no secure form; set privacy.noise = "
                "'plain'."
            )
        if field is None or self.release is None:
            raise DpflError(f"{self.name} adds no noise; leave privacy.noise out.")
        surveys = {"centre": self.centre, "columns": self.columns, "metric": self.metric}
        asked = {
            name: survey and survey.with_secure_noise() for name, survey in surveys.items()
        } | {"weights": self.weights.with_secure_noise()}
        return replace(self, **asked, **{field: self.release.with_secure_noise()})  # type: ignore[arg-type]

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
        return self.steps.total(rounds) if self.scale == "step" else rounds

    def releases_made(self, rounds: int, iterations: int) -> int:
        """How often it was made in rounds that took so many iterations."""
        return (
            iterations + self.steps.extra * rounds
            if self.scale == "step"
            else self.releases_in(rounds)
        )
