"""An algorithm: parts that know nothing of each other, put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from dpfl.client.optimisers import SGD
from dpfl.client.task import Local
from dpfl.errors import DpflError
from dpfl.models import Layout
from dpfl.privacy import Release, accountant
from dpfl.privacy.events import Event, gaussian
from dpfl.privacy.noise import Gaussian, Planned
from dpfl.privacy.release import Upload
from dpfl.server.steps import Fixed, Steps
from dpfl.server.update import ServerUpdate
from dpfl.server.weights import Uniform, Weights


@dataclass(frozen=True)
class Claim:
    """What the paper says of its own privacy: by an accountant, or by a formula in the number of releases."""

    text: str
    accountant: str | None = None
    formula: Callable[[int], float] | None = None

    def epsilon(self, releases: int, stated: Event, delta: float) -> float | None:
        if self.formula:
            return self.formula(releases)
        return accountant(self.accountant).epsilon({stated: releases}, delta) if self.accountant else None


@dataclass(frozen=True)
class Algorithm:
    """Local training x releases (in steps, on uploads, on the sum of a round) x steps x weights x server update.

    `leaks` names what a published system releases without any accounting: no epsilon is proven for it then. `controls` are
    those of SCAFFOLD.
    """

    name: str
    local: Local
    steps: Steps
    samples: Release | None = None
    clients: Release = field(default_factory=Release)
    weights: Weights = field(default_factory=Uniform)
    server: ServerUpdate = field(default_factory=ServerUpdate)
    variant: str = "sound"
    claim: Claim = Claim("no privacy is claimed")
    leaks: tuple[str, ...] = ()
    uploads: Upload | None = None
    controls: bool = False

    def __post_init__(self) -> None:
        private = [release for release in (self.samples, self.uploads, self.clients) if release and release.private]
        if len(private) > 1:
            raise DpflError("Noise on samples, uploads and clients at once has no single unit; choose one of them.")
        if self.clients.shared_by and not isinstance(self.weights, Uniform):
            raise DpflError("Noise shared over clients needs uniform weights; weigh by size only with noise at the server.")
        if not isinstance(self.steps, Fixed):
            self._check_adaptive()
        if self.weights.survey and self.weights.survey.trusted != (self.scale == "round"):
            raise DpflError(
                "Label histograms go to a trusted server where the sum of a round has the noise, and need their own elsewhere."
            )
        if self.controls and (self.scale == "round" or not isinstance(self.local.optimiser, SGD)):
            raise DpflError("Control variates are read off single updates of plain SGD; use them with noise at the clients.")
        survey = self.weights.survey
        shown = survey and survey.multiplier is None and not survey.trusted
        exact = (self.steps.asks_raw, self.samples and self.samples.realised, shown)
        if any(exact) != bool(self.leaks):
            raise DpflError("What a system releases without noise must be named in its leaks, and nothing else.")
        if self.variant == "sound" and self.leaks:
            raise DpflError(f"A sound system releases nothing without noise, but this one does: {'; '.join(self.leaks)}.")

    def _check_adaptive(self) -> None:
        if self.scale != "step":
            raise DpflError("Adaptive steps go by the clients' noisy gradients; use them with noise on samples.")
        if not isinstance(self.local.optimiser, SGD):
            raise DpflError(
                "Adaptive steps read gradients off the updates, which works for plain SGD only; set optimiser = 'sgd'."
            )
        if self.samples and isinstance(self.samples.noise, Planned):
            raise DpflError(
                "Adaptive steps spend a budget that the noise determines; give a noise_multiplier, for example 1.1."
            )

    @property
    def scale(self) -> str:
        """Where the noise is: in every `step` at a client, on its `upload`, on the sum of a `round`, or nowhere (`none`)."""
        for name, release in (("step", self.samples), ("upload", self.uploads), ("round", self.clients)):
            if release and release.private:
                return name
        return "none"

    @property
    def unit(self) -> str:
        """Whom the noise protects: one sample, one client (everything that it has), or nobody."""
        upload = self.uploads.protects if self.uploads else ""
        return {"step": "sample", "upload": upload, "round": "client", "none": "none"}[self.scale]

    @property
    def own_accounts(self) -> bool:
        """Whether every client pays from a ledger of its own; else the federation has one."""
        return self.scale in ("step", "upload")

    @property
    def release(self) -> Release | None:
        """The release that carries the noise."""
        return {"step": self.samples, "upload": self.uploads, "round": self.clients, "none": None}[self.scale]

    def with_noise(self, multiplier: float) -> Algorithm:
        if self.scale == "step" and self.samples:
            return replace(self, samples=self.samples.with_noise(multiplier))
        if self.scale == "upload" and self.uploads:
            return replace(self, uploads=replace(self.uploads, noise=Gaussian(multiplier)))
        return replace(self, clients=self.clients.with_noise(multiplier))

    def secured(self) -> Algorithm:
        """With noise against attacks on floating-point arithmetic; refused where some of the noise has no such form."""
        field = {"step": "samples", "upload": "uploads", "round": "clients"}.get(self.scale)
        survey = self.weights.survey
        if survey and survey.multiplier is not None:
            raise DpflError("privacy.noise = 'secure' does not cover label histograms; choose weights that ask for none.")
        if field is None or self.release is None:
            raise DpflError(f"{self.name} adds no noise; leave privacy.noise out.")
        return replace(self, **{field: self.release.secured()})  # type: ignore[arg-type]

    def fitted(self, layout: Layout) -> Algorithm:
        """For a model: releases of Haar coefficients have to know where its parameters end."""
        ends = (*layout.offsets[1:], layout.size)
        samples = self.samples.fitted([end for end in ends if end <= layout.trainable]) if self.samples else None
        return replace(self, samples=samples, clients=self.clients.fitted(ends))

    def event(self, population: int) -> Event:
        """What one release costs in truth: it has no guarantee where raw values come with it."""
        assert self.release is not None
        return gaussian(0.0) if self.steps.asks_raw else self.release.event(population)

    @property
    def before(self) -> dict[Event, int]:
        """What is released once, before the first round."""
        survey = self.weights.survey
        return {survey.event: 1} if survey and not survey.trusted else {}

    def stated_event(self, population: int) -> Event:
        """What the paper counts it as."""
        assert self.release is not None
        return self.release.stated_event(population)

    def releases_in(self, rounds: int) -> int:
        """How often the private release is made in this many rounds: every step, or once a round."""
        return self.steps.total(rounds) if self.scale == "step" else rounds
