"""An algorithm: parts that know nothing of each other, put together."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dpfl.client.task import Local
from dpfl.errors import DpflError
from dpfl.privacy import Release
from dpfl.server.steps import Steps
from dpfl.server.update import ServerUpdate
from dpfl.server.weights import Uniform, Weights


@dataclass(frozen=True)
class Claim:
    """What the paper says of its own privacy, and the accountant that it used."""

    text: str
    accountant: str | None = None


@dataclass(frozen=True)
class Algorithm:
    """Local training x releases at two scales x steps x weights x server update."""

    name: str
    local: Local
    steps: Steps
    samples: Release | None = None
    clients: Release = field(default_factory=Release)
    weights: Weights = field(default_factory=Uniform)
    server: ServerUpdate = field(default_factory=ServerUpdate)
    variant: str = "sound"
    claim: Claim = Claim("no privacy is claimed")

    def __post_init__(self) -> None:
        if self.samples and self.samples.private and self.clients.private:
            raise DpflError("Noise on samples and on clients at once has no single unit; choose one of the two.")
        if self.clients.shared_by and not isinstance(self.weights, Uniform):
            raise DpflError("Noise shared over clients needs uniform weights; weigh by size only with noise at the server.")

    @property
    def unit(self) -> str:
        """Whom the noise protects: one sample, one client, or nobody."""
        if self.samples and self.samples.private:
            return "sample"
        return "client" if self.clients.private else "none"

    @property
    def release(self) -> Release | None:
        """The release that carries the noise."""
        return {"sample": self.samples, "client": self.clients, "none": None}[self.unit]

    def with_noise(self, multiplier: float) -> Algorithm:
        if self.unit == "sample" and self.samples:
            return replace(self, samples=self.samples.with_noise(multiplier))
        return replace(self, clients=self.clients.with_noise(multiplier))

    def releases_in(self, rounds: int) -> int:
        """How often the private release is made in this many rounds: every step, or once a round."""
        return self.steps.total(rounds) if self.unit == "sample" else rounds
