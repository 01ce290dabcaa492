"""Measures how far each round moved the model, how far its noise alone would have moved it, and how
long single updates were.

The step of a round follows from what was released, and the size of its noise follows from the
settings, so both may be shown for any run. Single updates are measured only in runs without privacy
and for public clients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dpfl.client.noise_placement import NoisePlacement
from dpfl.client.task import ClientReply, ClientTask, RoundRequest
from dpfl.run.metrics import UpdateRow
from dpfl.server.aggregation.weights import compute_weights, round_divisor
from dpfl.server.algorithm import Algorithm
from dpfl.server.coordinator import Coordinator
from dpfl.server.state import FederationFacts, RunState

if TYPE_CHECKING:
    from torch import Tensor

MOST_CLIENTS = 100
"""The most single updates that are recorded per round."""


class UpdateDiagnostics:
    """Measures updates beside a run. It sees what the server gets, and changes nothing."""

    def __init__(
        self,
        ask: Callable[[RoundRequest], list[ClientReply]],
        state: RunState,
        names: Sequence[str],
        public: range,
    ) -> None:
        self._ask, self._last, self._names, self._public = ask, state.velocity, names, public
        self._rows: list[UpdateRow] = []

    def ask(self, request: RoundRequest) -> list[ClientReply]:
        """Sends a request of a run, and measures the updates of public clients.

        Args:
            request: The request.

        Returns:
            The replies, as the engine gave them.
        """
        replies = self._ask(request)
        self._look([reply for reply in replies if reply.client in self._public], request)
        return replies

    def of_round(
        self, coordinator: Coordinator, request: RoundRequest, replies: Sequence[ClientReply]
    ) -> list[UpdateRow]:
        """Measures a round after the server's step.

        Args:
            coordinator: The server's side of the round.
            request: The request of the round.
            replies: The replies of the clients.

        Returns:
            The row of the whole round, and after it the rows of single updates.
        """
        algorithm, state = coordinator.algorithm, coordinator.state
        if not algorithm.has_noise:
            self._look(replies, request)
        momentum = algorithm.server.momentum
        update = state.velocity.sub(self._last, alpha=momentum) if momentum else state.velocity
        noise = noise_norm(algorithm, coordinator.federation, state, request)
        turn = angle(state.velocity, self._last)
        step = UpdateRow(state.round, "", length(update), turn, noise)
        rows, self._rows, self._last = [step, *self._rows], [], state.velocity
        return rows

    def _look(self, replies: Sequence[ClientReply], request: RoundRequest) -> None:
        room = MOST_CLIENTS - len(self._rows)
        for reply in [reply for reply in replies if reply.update is not None][:room]:
            assert reply.update is not None
            whose = self._whose(reply.client)
            clip = request.tasks[0].clients.clip.clip_norm
            norm, turn = length(reply.update), angle(reply.update, self._last)
            self._rows.append(
                UpdateRow(
                    request.round + 1, whose, norm, turn, clip=clip if math.isfinite(clip) else None
                )
            )

    def _whose(self, client: int) -> str:
        """Names a client. Clients of a population have a number only."""
        if client in self._public:
            return f"public {client - self._public.start}"
        return self._names[client] if client < len(self._names) else f"client {client}"


def length(vector: Tensor) -> float:
    """Computes the L2 norm of a vector.

    Args:
        vector: The vector.

    Returns:
        The norm to eight digits, which do not depend on where the vector lies in memory.
    """
    return float(f"{float(vector.double().norm()):.8g}")


def angle(update: Tensor, last: Tensor) -> float | None:
    """Computes the angle between an update and the step of the round before.

    Args:
        update: The update.
        last: The step before; zeros before the first round.

    Returns:
        Degrees from 0 to 180; None if one of the two is zero, or not finite.
    """
    lengths = length(update) * length(last)
    if not 0 < lengths < math.inf:
        return None
    cosine = float(update.double().dot(last.double())) / lengths
    return round(math.degrees(math.acos(max(-1.0, min(1.0, cosine)))), 4)


def noise_norm(
    algorithm: Algorithm, facts: FederationFacts, state: RunState, request: RoundRequest
) -> float | None:
    """Computes the root of E |noise|^2 in the mean update of a round, from settings alone.

    Args:
        algorithm: The algorithm as it runs.
        facts: The model's layout and the declared sizes.
        state: The state of the server, for weights that were paid for.
        request: The request of the round, for its releases and its steps.

    Returns:
        An L2 norm. None without noise, with noise that is shared or taken back later, and where
        the update is not the sum of linear steps.
    """
    if not request.tasks or algorithm.noise_shares or algorithm.controls:
        return None
    task, size, declared_sizes = request.tasks[0], facts.layout.size, facts.declared_sizes
    if release := task.placed_release.release_at(NoisePlacement.ROUND_SUM):
        if release.banded_noise:
            return None
        divisor = round_divisor(release, algorithm.weights, declared_sizes)
        return release.stddev() * math.sqrt(release.energy(size)) / divisor
    weights = (
        compute_weights(algorithm.weights, declared_sizes)
        if state.weights is None
        else state.weights
    )
    shares = {
        client_task.client: float(weights[client_task.client]) for client_task in request.tasks
    }
    each = [
        _upload_norm(task, declared_sizes[client], facts.layout.trainable, size)
        for client in shares
    ]
    if None in each or not (whole := sum(shares.values())):
        return None
    return math.hypot(
        *(share / whole * (norm or 0.0) for share, norm in zip(shares.values(), each, strict=True))
    )


def _upload_norm(task: ClientTask, declared_size: int, trainable: int, size: int) -> float | None:
    """Computes the norm that noise alone gives the update of one client; None where settings do not
    tell it.
    """
    if update := task.placed_release.release_at(NoisePlacement.CLIENT_UPDATE):
        return update.stddev() * math.sqrt(update.energy(size))
    samples, optimiser = (
        task.placed_release.release_at(NoisePlacement.EVERY_STEP),
        task.local.optimiser,
    )
    if samples is None or not optimiser.linear:
        return None
    step = samples.mean_stddev(declared_size) * math.sqrt(samples.energy(trainable))
    return optimiser.rate * step * math.sqrt(task.steps)
