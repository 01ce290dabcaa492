"""What a run has come to, and the federation as its server knows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpfl.models import Layout
from dpfl.privacy import Budget, Ledger, Limit, Release
from dpfl.server.steps.policy import StepFacts

if TYPE_CHECKING:
    from torch import Tensor

    from dpfl.server.algorithm import Algorithm

PAST_NOISE = "past noise"
"""What the server remembers of the noise that later rounds take back; as secret as the seed."""

METRIC = "metric"
"""What clients answered of how good the model is, with noise: the mean, of how many samples, and
the noise's deviation.
"""


@dataclass
class RunState:
    """What a run has come to; all that a checkpoint holds."""

    vector: Tensor
    velocity: Tensor
    samples: Release | None
    clients: Release
    remaining: list[int]
    round: int = 0
    tau: int = 0
    iterations: int = 0
    shown: int = 0
    bytes: int = 0
    seconds: float = 0.0
    memory: dict[str, Tensor] = field(default_factory=dict)
    weights: Tensor | None = None
    kept: Tensor | None = None
    average: Tensor | None = None
    paid: list[int] = field(default_factory=list)
    """Releases that each account is known to have paid for: whoever failed may have paid, or
    not.
    """
    lost: list[str] = field(default_factory=list)
    """Replies that did not come to anything, a line each."""

    def __post_init__(self) -> None:
        self.paid = self.paid or [0] * len(self.remaining)

    @property
    def model(self) -> Tensor:
        """What is shown and kept as the model: the average of the iterates where there is one."""
        return self.vector if self.average is None else self.average


@dataclass(frozen=True)
class FederationFacts:
    """The federation as the server knows it: public facts, declared before training."""

    run: str
    declared: Sequence[int]
    layout: Layout
    public: Sequence[int] = ()
    ledger: Ledger | None = None
    limit: Limit | None = None
    held_out: Sequence[int] = ()
    """How many samples each client keeps out of training, for a metric; none where it is of those
    of training.
    """


def facts(
    algorithm: Algorithm,
    budget: Budget,
    federated: FederationFacts,
    state: RunState,
    weights: Tensor,
) -> StepFacts:
    """What a step policy may know of the run as it stands."""
    samples = state.samples
    batches = (
        [samples.sampling.expected_size(size) for size in federated.declared] if samples else []
    )
    clip = samples.clip.clip_norm if samples else 0.0
    multiplier = samples.stddev() / clip if samples else 0.0
    rate, parameters = algorithm.local.optimiser.rate, federated.layout.trainable
    energy = samples.energy(parameters) if samples else 0.0
    return StepFacts(
        budget.rounds, rate, multiplier, clip, parameters, batches, weights.tolist(), energy
    )


def keep_variances_positive(vector: Tensor, layout: Layout) -> None:
    for entry, name in enumerate(layout.names):
        if name.endswith("running_var"):
            vector[layout.span(entry)].clamp_(min=1e-5)
