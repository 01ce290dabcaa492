"""The state of a run, and the federation as its server knows it."""

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
"""The name of the noise that the server remembers because later rounds take it back. It is as
secret as the seed.
"""

METRIC = "metric"
"""The name of the clients' noisy answer about the model: the number of samples, the standard
deviation of the noise, and the mean.
"""


@dataclass
class RunState:
    """The state of a run: all that a round changes, and all that a checkpoint holds.

    Attributes:
        vector: The global model.
        velocity: The velocity of the server's momentum.
        samples: The current release of the samples in a step; None where steps are not private.
        clients: The current release of the clients of a round.
        remaining: How many releases each account can still pay for.
        round: How many rounds the run has finished.
        tau: The local steps of the last round; 0 before the first.
        iterations: The local steps of all rounds.
        cohort_size: The size of the last cohort, for the record.
        bytes: The traffic so far, in bytes.
        seconds: The duration so far, in seconds.
        memory: What step policy, schedule and noise remember.
        weights: The weights of the clients, where they were asked for.
        client_vectors: What the server keeps per client, one row each.
        average: The average of the iterates, where there is one.
        debits: How many releases each account is known to have paid for. A client that failed may
            have paid for more.
        lost_replies: Replies that could not be used, one line each.
    """

    vector: Tensor
    velocity: Tensor
    samples: Release | None
    clients: Release
    remaining: list[int]
    round: int = 0
    tau: int = 0
    iterations: int = 0
    cohort_size: int = 0
    bytes: int = 0
    seconds: float = 0.0
    memory: dict[str, Tensor] = field(default_factory=dict)
    weights: Tensor | None = None
    client_vectors: Tensor | None = None
    average: Tensor | None = None
    debits: list[int] = field(default_factory=list)
    lost_replies: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.debits = self.debits or [0] * len(self.remaining)

    @property
    def model(self) -> Tensor:
        """The model of the run: the average of the iterates where there is one, else the last."""
        return self.vector if self.average is None else self.average


@dataclass(frozen=True)
class FederationFacts:
    """The federation as the server knows it: public facts, declared before training.

    Attributes:
        run: The identifier of the run.
        declared: How many samples each client declared.
        layout: The layout of the model.
        public: The numbers of clients whose data is public.
        ledger: The federation's own ledger, where the federation pays.
        limit: The limit of that ledger.
        held_out: How many samples each client keeps out of training for a metric. It is empty where
            the metric uses the samples of training.
    """

    run: str
    declared_sizes: Sequence[int]
    layout: Layout
    public: Sequence[int] = ()
    ledger: Ledger | None = None
    limit: Limit | None = None
    held_out: Sequence[int] = ()


def step_facts(
    algorithm: Algorithm,
    budget: Budget,
    federation: FederationFacts,
    state: RunState,
    weights: Tensor,
) -> StepFacts:
    """Collects what a step policy may know of the run as it stands.

    Args:
        algorithm: The algorithm.
        budget: The budget of the run.
        federation: The federation as the server knows it.
        state: The run, with its current release of samples.
        weights: The weight of each client.

    Returns:
        The facts. Without a release of samples, clip, noise and batches are 0 or empty.
    """
    samples = state.samples
    declared_sizes = federation.declared_sizes if samples else ()
    batches = [samples.sampling.expected_size(size) for size in declared_sizes] if samples else []
    divisors = [samples.divisor_for(size) for size in declared_sizes] if samples else []
    clip = samples.clip.clip_norm if samples else 0.0
    multiplier = samples.stddev() / clip if samples else 0.0
    rate, parameters = algorithm.local.optimiser.rate, federation.layout.trainable
    energy = samples.energy(parameters) if samples else 0.0
    return StepFacts(
        budget.rounds,
        rate,
        multiplier,
        clip,
        parameters,
        batches,
        weights.tolist(),
        energy,
        divisors,
    )


def keep_variances_positive(vector: Tensor, layout: Layout) -> None:
    """Raises the running variances of batch normalisation to 1e-5, in place.

    Noise can make them negative, and a layer takes their root.

    Args:
        vector: The model; changed in place.
        layout: The layout of the model.
    """
    for entry, name in enumerate(layout.names):
        if name.endswith("running_var"):
            vector[layout.span(entry)].clamp_(min=1e-5)
