"""The tasks that the server sends to clients, and the replies that clients send back.

    >>> step = Release(Poisson(0.01), Flat(1.0), Gaussian(1.1))
    >>> everybody = Release(All(), NoClip())
    >>> task = ClientTask(0, 3, 5, LocalTraining(SGD(0.1)), everybody, samples=step)
    >>> task.placement, task.cost(declared_size=60_000)[1]  # 5 steps, each of which is paid for
    (<NoisePlacement.EVERY_STEP: 'step'>, 5)

A `RoundRequest` holds one `ClientTask` per client of the cohort, and the model's vector once for
all of them. Each client sends a `ClientReply`: an update, an answer, or why there is neither.

The server, the client and the node's owner read the cost of a task from the task itself, and so
they all read the same:

- `placed_release` is the one release that has noise, of the three that a task carries (`samples`
  for a step, `update` for the client's update, `clients` for the sum of the round).
- `cost(declared_size)` is the event that the client's own ledger pays, and how often. It follows
  from the task and from the number of samples that the client declared, and never from the data.
- `sample_sensitivity` bounds how far one sample moves an update of T plain SGD steps with clip norm
  C: 2 eta C (T - 1 + share). `rounding_sensitivity` adds what float32 can add to that.

`client/runner.py` works on a task, `client/disclosure_rules.py` says what an owner allows, and
`protocol/task_messages.py` carries tasks and replies to other machines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dpfl.client.descent.objectives import CrossEntropy, Generator, Objective
from dpfl.client.descent.optimisers import Optimiser
from dpfl.client.noise_placement import NoisePlacement, PlacedRelease
from dpfl.codec import part
from dpfl.errors import DpflError
from dpfl.privacy import Randomness, Release
from dpfl.privacy.accounting.events import Event, gaussian
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.privacy.mechanisms.update_release import UpdateRelease
from dpfl.privacy.queries.query import PrivateQuery

if TYPE_CHECKING:
    from torch import Tensor


@part("local-training")
@dataclass(frozen=True)
class LocalTraining:
    """The settings of a client's training.

    Attributes:
        optimiser: The rule of a step.
        batch_size: Samples per step, where samples are not released privately. Private steps
            sample by their release.
        prox: The weight of FedProx's pull to the global model; 0 for none.
        objective: The loss that plain steps lower.
    """

    optimiser: Optimiser
    batch_size: int = 64
    prox: float = 0.0
    objective: Objective = field(default_factory=CrossEntropy)

    def __post_init__(self) -> None:
        if not 0 <= self.prox < math.inf:
            raise DpflError(
                "The pull to the global model (prox) must be a number of at least 0, not "
                f"{self.prox}."
            )


def sample_sensitivity(local: LocalTraining, samples: Release | None, steps: int) -> float:
    """Bounds how far one sample moves an update of plain SGD on means of clipped gradients.

    The first mean that the sample is in moves by the sample's own share of it. The means after that
    move by all of it, since the models differ:

        2 eta C (steps - 1 + share)

    Args:
        local: Optimiser and drift.
        samples: The release of samples in a step.
        steps: How many steps an update has.

    Returns:
        The bound; infinite for any other training.
    """
    if (
        samples is None
        or samples.divide_by_drawn
        or samples.divisor
        or not samples.clip.bounds_vector
    ):
        return math.inf
    if not local.optimiser.linear or local.prox:
        return math.inf
    return (
        2 * local.optimiser.rate * samples.clip.clip_norm * (steps - 1 + samples.sampling.max_share)
    )


def exceeds_update_noise(
    update: UpdateRelease, local: LocalTraining, samples: Release | None, steps: int
) -> bool:
    """Says whether one sample can move an update farther than its noise is made for.

    An upload for one sample must bound that sample: by the clip of the upload, or by the clip of
    gradients before it.

    Args:
        update: The release of the update.
        local: Optimiser and drift.
        samples: The release of samples in a step.
        steps: How many steps an update has.

    Returns:
        Whether it can; False where the noise is for the client as a whole.
    """
    if update.sample_bound is None:
        return False
    return not update.covers(min(update.diameter, sample_sensitivity(local, samples, steps)))


ROUNDING = 2.0**-21
"""How far one step in float32 can move two differently rounded models apart, as a share of their
norm: 8 times 2^-24.
"""


def rounding_sensitivity(task: ClientTask, model: Tensor, correction: Tensor | None) -> float:
    """Bounds how much farther apart float32 can bring two updates that one sample moves.

    A step is rounded to the digits of the model. The server chooses the model, so its norm may be
    large and every number may lie at the edge of the next. The same holds for the difference
    between a clipped model and the model that was sent. The bound is 0 where the clip bounds the
    update itself and the noise covers everything inside the clip.

    Args:
        task: The task.
        model: The model that was sent.
        correction: What is added to every gradient, if anything.

    Returns:
        The distance to add to the sensitivity.
    """
    samples, upload = task.samples, task.update
    if upload is not None and upload.clip.bounds_model:
        return ROUNDING * (float(model.double().norm()) + upload.clip.clip_norm)
    if upload is None or samples is None or upload.covers(upload.diameter):
        return 0.0
    step = task.local.optimiser.rate * (
        samples.clip.clip_norm + (0.0 if correction is None else float(correction.double().norm()))
    )
    return ROUNDING * task.steps * (float(model.double().norm()) + task.steps * step)


@part("secure-sum")
@dataclass(frozen=True)
class SecureSumTerms:
    """The public terms of a secure sum.

    Attributes:
        weight: The weight of this client's vector in the sum, from 0 to 1.
        bound: The largest magnitude of a number in a client's weighted vector, before its noise.
        clients: The number of clients that sum together.
    """

    weight: float
    bound: float
    clients: int

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= 1:
            raise DpflError(
                f"In a secure sum a client's weight must be between 0 and 1, not {self.weight}, "
                "because its noise is scaled for that range."
            )


DIFFERENCES, LAST_STEP = "differences", "last step"
RAW_VALUES = (DIFFERENCES, LAST_STEP)
"""Kinds of raw values: how loss, gradient and weights differ between the model that was sent and
the client's own, and how far the last step went and changed the loss of its batch.
"""


@part("task", optional=("norms", "raw_values"))
@dataclass(frozen=True)
class ClientTask:
    """The work of one client in one round. The model's vector travels beside the task.

    Attributes:
        round: The number of the round, from 0.
        client: The number of the client.
        steps: The local steps; 0 where only raw values or an answer are asked for.
        local: How the client trains.
        clients: The release of the clients of the round.
        samples: The release of the samples in a step; None for plain steps.
        horizon: How many releases of this kind are still to come; 0 where that is not known.
        raw: Whether the reply also has values without noise, which leaves no guarantee.
        update: The release of the client's whole update, if it is one.
        query: A question to answer in the place of training.
        slope: Whether the reply also has a noisy slope, which is paid for like a step.
        secure_sum: The public terms of a secure sum that the reply goes into, if any.
        norms: Whether the norms of gradients are asked for. Only a client with public data answers.
        raw_values: Which raw values are asked for. They change neither the release beside them nor
            its name.
    """

    round: int
    client: int
    steps: int
    local: LocalTraining
    clients: Release
    samples: Release | None = None
    horizon: int = 0
    raw: bool = False
    update: UpdateRelease | None = None
    query: PrivateQuery | None = None
    slope: bool = False
    secure_sum: SecureSumTerms | None = None
    norms: bool = False
    raw_values: tuple[str, ...] = field(default=(), repr=False)

    @cached_property
    def placed_release(self) -> PlacedRelease:
        """The one release of the client's training that has noise, and where its noise is added."""
        return PlacedRelease.of(self.samples, self.update, self.clients)

    @property
    def noisy_releases(self) -> tuple[PlacedRelease, ...]:
        """The releases that have noise; an algorithm's tasks have one at most."""
        return PlacedRelease.list_all(self.samples, self.update, self.clients)

    @property
    def update_release(self) -> Release:
        """The release whose clip bounds the client's whole update, with noise or without: its own
        where it has one, or else that of the clients of the round.
        """
        return self.update or self.clients

    @property
    def placement(self) -> NoisePlacement:
        """Where the noise of the training is added."""
        return self.placed_release.placement

    def generator(self, randomness: Randomness) -> Generator:
        """Makes the random generators of this task.

        Args:
            randomness: The randomness of the released value.

        Returns:
            A function from a purpose to its generator.
        """
        return lambda purpose: randomness.generator(purpose, self.round, self.client)

    @property
    def own_release(self) -> Release | None:
        """The release that the client's own ledger pays for; None for a query, or where the
        federation pays.
        """
        return (
            self.placed_release.release
            if self.placed_release.client_pays and not self.query
            else None
        )

    @property
    def summed_release(self) -> Release | None:
        """The client's own release where it has a share of the noise only, and goes into a secure
        sum.
        """
        return self.own_release if self.placed_release.noise_shares else None

    @property
    def noise_shares(self) -> NoiseShares | None:
        """How clients share the noise of the reply, where the server sees sums only: the noise of a
        step, of an update, or of an answer.
        """
        return self.placed_release.noise_shares if self.secure_sum or not self.query else None

    @property
    def only_raw_values(self) -> bool:
        """Whether it asks for raw values and no step: between the client's own last model and the
        one that comes with it.
        """
        return self.raw and self.steps == 0 and self.query is None

    @property
    def asks_metric(self) -> bool:
        """Whether it asks for a metric."""
        return self.query is not None and self.query.asks_metric

    def cost(self, declared_size: int) -> tuple[Event, int] | None:
        """Computes what the client's own ledger pays for this task.

        A task that asks for raw values beside its release has no guarantee (the event of noise 0).
        One that asks for raw values only pays nothing: it is allowed only where the ledger holds
        such an event already.

        Args:
            declared_size: How many units the client declared that it has.

        Returns:
            The event and how often it is paid for; None where the client's ledger pays nothing.
        """
        if self.only_raw_values:
            return None
        if self.query:
            return None if self.query.trusted else (self.query.event, 1)
        release, placement = self.own_release, self.placement
        if release is None:
            return None
        if placement is NoisePlacement.ROUND_SUM:
            return (release.event(self.secure_sum.clients), 1) if self.secure_sum else None
        in_steps = placement is NoisePlacement.EVERY_STEP
        event = gaussian(0.0) if self.raw else release.event(declared_size if in_steps else 1)
        return event, self.steps + self.slope if in_steps else 1


@dataclass(frozen=True)
class RoundRequest:
    """The request of one round: the tasks of the cohort, from the same model.

    Attributes:
        round: The number of the round, from 0.
        steps: The local steps of each client.
        tasks: One task per client of the cohort.
        vector: The global model as one flat vector.
        corrections: What the server keeps for each client, if anything. It is added to the client's
            gradients. For an objective that needs the client's last model, and where no step is
            asked for, it is that model.
    """

    round: int
    steps: int
    tasks: tuple[ClientTask, ...]
    vector: Tensor
    corrections: Mapping[int, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class ClientReply:
    """A client's release, or why there is none.

    Attributes:
        client: The number of the client.
        update: The update; None if there is none, or if it goes into a secure sum.
        inside: Whether the clip left the update as it was.
        refusal: Why the client refused the task, or "".
        failure: Why the client failed at the task, or "".
        diverged: Whether its model left all bounds.
        raw: Values beside the update, by name; or the answer to a query.
        numbers: The client's part of a secure sum, which nobody sees by itself.
    """

    client: int
    update: Tensor | None = None
    inside: bool = True
    refusal: str = ""
    failure: str = ""
    diverged: bool = False
    raw: Mapping[str, np.ndarray] | None = None
    numbers: np.ndarray | None = None


def reply_values(replies: Sequence[ClientReply]) -> dict[int, Mapping[str, np.ndarray]]:
    """Collects what clients sent beside an update, or in its place.

    Args:
        replies: The replies of a request.

    Returns:
        Values by name, for each client that sent some.
    """
    return {reply.client: reply.raw for reply in replies if reply.raw is not None}
