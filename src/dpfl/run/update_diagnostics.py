"""How far each round moved the model, how far its noise alone would have, and, where nothing is
private, single updates.

The step of a round follows from what was released, and the size of its noise from the settings:
both may be shown of any run. Single updates are looked at in runs without privacy, and of public
clients; of nobody else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dpfl.client.noise_placement import NoisePlacement
from dpfl.client.task import ClientReply, ClientTask, RoundRequest
from dpfl.run.metrics import UpdateRow
from dpfl.server.algorithm import Algorithm
from dpfl.server.coordinator import Coordinator
from dpfl.server.state import FederationFacts, RunState
from dpfl.server.weights import compute_weights

if TYPE_CHECKING:
    from torch import Tensor

MOST_CLIENTS = 100
"""Single updates that are kept of a round."""


class UpdateDiagnostics:
    """Beside a run: it sees what the server gets, and changes nothing."""

    def __init__(
        self,
        ask: Callable[[RoundRequest], list[ClientReply]],
        state: RunState,
        names: Sequence[str],
        public: range,
    ) -> None:
        self._ask, self._last, self._names, self._public = ask, state.velocity, names, public
        self._seen: list[UpdateRow] = []

    def ask(self, order: RoundRequest) -> list[ClientReply]:
        """What is asked beside the rounds; public clients may be looked at."""
        replies = self._ask(order)
        self._look([reply for reply in replies if reply.client in self._public], order)
        return replies

    def of_round(
        self, coordinator: Coordinator, order: RoundRequest, replies: Sequence[ClientReply]
    ) -> list[UpdateRow]:
        """After the server's step: the round's own line first, whose noise is None where nothing is
        said of it.
        """
        algorithm, state = coordinator.algorithm, coordinator.state
        if algorithm.unit == "none":
            self._look(replies, order)
        momentum = algorithm.server.momentum
        update = state.velocity.sub(self._last, alpha=momentum) if momentum else state.velocity
        noise = noise_norm(algorithm, coordinator.federated, state, order)
        moved = UpdateRow(state.round, "", length(update), angle(state.velocity, self._last), noise)
        lines, self._seen, self._last = [moved, *self._seen], [], state.velocity
        return lines

    def _look(self, replies: Sequence[ClientReply], order: RoundRequest) -> None:
        kept = [reply for reply in replies if reply.update is not None][
            : MOST_CLIENTS - len(self._seen)
        ]
        for reply in kept:
            assert reply.update is not None
            whose = self._whose(reply.client)
            clip = order.tasks[0].clients.clip.clip_norm
            norm, turned = length(reply.update), angle(reply.update, self._last)
            self._seen.append(
                UpdateRow(
                    order.round + 1, whose, norm, turned, clip=clip if math.isfinite(clip) else None
                )
            )

    def _whose(self, client: int) -> str:
        """Clients that are drawn from many have no names."""
        if client in self._public:
            return f"public {client - self._public.start}"
        return self._names[client] if client < len(self._names) else f"client {client}"


def length(vector: Tensor) -> float:
    """L2, to the digits that do not depend on where a vector lies in memory."""
    return float(f"{float(vector.double().norm()):.8g}")


def angle(update: Tensor, last: Tensor) -> float | None:
    """In degrees, to the step before; there is none before the first."""
    lengths = length(update) * length(last)
    if not 0 < lengths < math.inf:
        return None
    cosine = float(update.double().dot(last.double())) / lengths
    return round(math.degrees(math.acos(max(-1.0, min(1.0, cosine)))), 4)


def noise_norm(
    algorithm: Algorithm, federated: FederationFacts, state: RunState, order: RoundRequest
) -> float | None:
    """The root of E |noise|^2 in the mean update of a round, from settings alone.

    None where there is no noise, where it is shared or taken back later, and where training does
    more than add steps up.
    """
    if not order.tasks or algorithm.noise_shares or algorithm.controls:
        return None
    task, size, declared = order.tasks[0], federated.layout.size, federated.declared
    if algorithm.placement is NoisePlacement.ROUND_SUM:
        release, divisor = (
            task.clients,
            task.clients.sampling.expected_size(len(declared)) * algorithm.weights.usual(declared),
        )
        return (
            None
            if release.correlated
            else release.stddev() * math.sqrt(release.energy(size)) / divisor
        )
    weights = (
        compute_weights(algorithm.weights, declared) if state.weights is None else state.weights
    )
    shares = {one.client: float(weights[one.client]) for one in order.tasks}
    each = [
        _upload_norm(task, declared[client], federated.layout.trainable, size) for client in shares
    ]
    if None in each or not (whole := sum(shares.values())):
        return None
    return math.hypot(
        *(share / whole * (norm or 0.0) for share, norm in zip(shares.values(), each, strict=True))
    )


def _upload_norm(task: ClientTask, declared: int, trainable: int, size: int) -> float | None:
    """Of one client's update."""
    if task.update and task.update.private:
        return task.update.stddev() * math.sqrt(task.update.energy(size))
    samples, optimiser = task.samples, task.local.optimiser
    if samples is None or not samples.private or not optimiser.linear:
        return None
    step = (
        samples.stddev()
        * math.sqrt(samples.energy(trainable))
        / samples.sampling.expected_size(declared)
    )
    return optimiser.rate * step * math.sqrt(task.steps)
