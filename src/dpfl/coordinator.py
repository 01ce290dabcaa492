"""The server's side of a round: an order inside every budget, and the step that the replies give."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dpfl.algorithms import Algorithm
from dpfl.client.task import Order, Reply, Task
from dpfl.errors import DpflError
from dpfl.models import Layout
from dpfl.privacy import Budget, Ledger, Limit, NoClip, PublicMedian, Quantile, Randomness, Release
from dpfl.privacy.randomness import scoped
from dpfl.server.aggregate import mean, noisy_inside_fraction, noisy_mean, weighted_sum


@dataclass
class State:
    """What a run has come to; all that a checkpoint holds."""

    vector: Tensor
    velocity: Tensor
    samples: Release | None
    clients: Release
    remaining: list[int]
    round: int = 0
    iterations: int = 0
    bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Federated:
    """The federation as the server knows it: public facts, declared before training."""

    run: str
    declared: Sequence[int]
    layout: Layout
    public: Sequence[int] = ()
    ledger: Ledger | None = None
    limit: Limit | None = None


class Coordinator:
    def __init__(
        self,
        algorithm: Algorithm,
        budget: Budget,
        federated: Federated,
        state: State,
        randomness: Randomness,
        probe: Callable[[Order], list[Reply]],
    ) -> None:
        self.algorithm, self.budget, self.federated, self.state = algorithm, budget, federated, state
        self.stopped_by = ""
        self.lost: list[str] = []
        self._randomness, self._probe = randomness, probe
        self._weights = algorithm.weights.of(federated.declared)
        self._clock = time.monotonic() - state.seconds
        self._cohort: tuple[int, ...] = ()

    def next_order(self) -> Order | None:
        """1: the cohort and tau, inside every budget; None is the end."""
        state = self.state
        if self.stopped_by or self._out_of_time() or self._out_of_privacy():
            return None
        self._find_public_clip()
        steps = self._steps()
        rng = self._randomness.generator("cohort", state.round)
        drawn = state.clients.sampling.draw(len(self.federated.declared), rng)
        self._cohort = tuple(int(client) for client in drawn if self.algorithm.unit != "sample" or state.remaining[client] > 0)
        traffic = self._traffic(self.clients_shown)
        if self.budget.bytes is not None and state.bytes + traffic > self.budget.bytes:
            self.stopped_by = "bytes"
            return None
        state.bytes += traffic
        return self._order(self._cohort, steps, state.clients)

    def _order(self, clients: Sequence[int], steps: int, release: Release) -> Order:
        state, planned = self.state, self.budget.rounds
        horizon = self.algorithm.steps.total(planned) - state.iterations if planned else 0
        tasks = tuple(
            Task(state.round, client, steps, self.algorithm.local, release, state.samples, max(horizon, 0))
            for client in clients
        )
        return Order(state.round, steps, tasks, state.vector, _digest(state.vector))

    @property
    def clients_shown(self) -> int:
        """The size of the cohort, for the record: at client level the expected one, since who was drawn stays secret."""
        if self.algorithm.unit == "client":
            return round(self.state.clients.sampling.expected(len(self.federated.declared)))
        return len(self._cohort)

    def _steps(self) -> int:
        tau = self.algorithm.steps.next(self.state.round)
        if self.algorithm.unit != "sample":
            return tau
        return min(tau, *(left for left in self.state.remaining if left > 0))

    def _out_of_time(self) -> bool:
        self.state.seconds = time.monotonic() - self._clock
        if self.budget.rounds is not None and self.state.round >= self.budget.rounds:
            self.stopped_by = "rounds"
        elif self.budget.seconds is not None and self.state.seconds >= self.budget.seconds:
            self.stopped_by = "seconds"
        return bool(self.stopped_by)

    def _out_of_privacy(self) -> bool:
        if self.algorithm.unit != "none" and not any(left > 0 for left in self.state.remaining):
            self.stopped_by = "epsilon"
        return bool(self.stopped_by)

    def _traffic(self, clients: int) -> int:
        """The model down and the update up, four bytes a number."""
        return 2 * 4 * self.federated.layout.size * clients

    def _find_public_clip(self) -> None:
        """The clip of this round from clients whose data is public: trained like the others, never clipped nor counted."""
        clip = self.state.clients.clip
        if not isinstance(clip, PublicMedian):
            return
        unclipped = Release(self.state.clients.sampling, NoClip())
        replies = self._probe(self._order(self.federated.public, self.algorithm.steps.next(self.state.round), unclipped))
        norms = [float(reply.update.norm()) for reply in replies if reply.update is not None]
        self.state.clients = replace(self.state.clients, clip=clip.adapt(norms))

    def aggregate(self, replies: Sequence[Reply]) -> None:
        """3: weigh, sum, noise, and the server's step."""
        state = self.state
        good = self._usable(replies)
        size = self.federated.layout.size
        if self.algorithm.unit == "client":
            total = weighted_sum(good, self._weights, size)
            randomness = self._debit_federation(total, sum(reply.inside for reply in good))
            rng = randomness.generator("server noise", state.round)
            update = noisy_mean(total, len(good), self._weights, state.clients, rng)
            self._adapt_quantile(good, randomness)
        else:
            update = mean(good, self._weights, size)
        state.vector, state.velocity = self.algorithm.server.step(state.vector, state.velocity, update)
        self._keep_variances_positive()

    def _usable(self, replies: Sequence[Reply]) -> list[Reply]:
        """Refusals and failures cost their own reply; a client whose loss is not a number ends the run."""
        good = []
        for reply in replies:
            if reply.diverged:
                raise DpflError(
                    f"Training diverged at client {reply.client} in round {self.state.round + 1}: {reply.failed} "
                    "The last good checkpoint is kept; lower the learning rate, then start anew."
                )
            if reply.refused and self.algorithm.unit == "sample":
                self.state.remaining[reply.client] = 0
            problem = reply.refused or reply.failed or _fault(reply.update, self.federated.layout.size)
            if problem:
                self.lost.append(f"round {self.state.round + 1}, client {reply.client}: {problem}")
            else:
                good.append(reply)
        if replies and not good and not any(reply.refused for reply in replies):
            raise DpflError(f"No reply of round {self.state.round + 1} can be used; the last: {self.lost[-1]}")
        return good

    def _debit_federation(self, total: Tensor, inside: int) -> Randomness:
        """Client level: the whole federation pays for the round, whoever was drawn, before the noisy sum exists.

        A round that is made again after a crash is the same release only if the same sum and count come out: these name it,
        and key its noise.
        """
        ledger, state = self.federated.ledger, self.state
        assert ledger is not None
        name = f"{_digest(state.vector, total)}-{inside}"
        fresh = "" if self._randomness.repeatable else secrets.token_hex(16)
        entry = f"{self.federated.run}/{state.round}/{name}{fresh}"
        event = state.clients.event(len(self.federated.declared))
        planned = self.budget.rounds - state.round if self.budget.rounds else 0
        ledger.debit(self.federated.run, entry, event, 1, self.federated.limit, planned)
        return scoped(self._randomness, name)

    def _adapt_quantile(self, replies: Sequence[Reply], randomness: Randomness) -> None:
        """Only after the noisy sum is made with the level that the clients used."""
        release = self.state.clients
        if isinstance(release.clip, Quantile):
            rng = randomness.generator("count noise", self.state.round)
            expected = release.sampling.expected(len(self.federated.declared))
            fraction = noisy_inside_fraction(replies, release.clip, expected, rng)
            self.state.clients = replace(release, clip=release.clip.adapt(fraction))

    def _keep_variances_positive(self) -> None:
        layout = self.federated.layout
        for entry, name in enumerate(layout.names):
            if name.endswith("running_var"):
                self.state.vector[layout.span(entry)].clamp_(min=1e-5)

    def close_round(self, steps: int) -> None:
        """4: count what the round used."""
        state = self.state
        if self.algorithm.unit == "sample":
            for client in self._cohort:
                state.remaining[client] = max(0, state.remaining[client] - steps)
        elif self.algorithm.unit == "client":
            state.remaining[0] -= 1
        state.round += 1
        state.iterations += steps


def _digest(*tensors: Tensor) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()


def _fault(update: Tensor | None, size: int) -> str:
    if update is None or update.shape != (size,):
        return "its update has the wrong shape and was dropped"
    return "" if torch.isfinite(update).all() else "its update is not finite and was dropped"
