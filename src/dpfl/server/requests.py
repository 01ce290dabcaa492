"""Builds every request that the server sends to clients.

A training round, a round without clip or noise at public clients, raw values of a round once more,
and a private query are all one `RoundRequest`. They differ in the tasks only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from dpfl.client.noise_placement import NoisePlacement
from dpfl.client.task import RAW_VALUES, ClientTask, RoundRequest, SecureSumTerms
from dpfl.privacy import Budget, NoClip, Release
from dpfl.privacy.mechanisms.update_release import UpdateRelease
from dpfl.privacy.queries.query import PrivateQuery
from dpfl.server.aggregation.round_sum import RoundSum
from dpfl.server.aggregation.weights import compute_weights
from dpfl.server.algorithm import Algorithm
from dpfl.server.public_clips import asking_norms
from dpfl.server.schedules import release_of_client
from dpfl.server.state import FederationFacts, RunState


class RequestBuilder:
    """Builds requests from the run as it stands.

    Args:
        algorithm: The algorithm.
        budget: When the run ends.
        federation: The federation as the server knows it.
        state: The run as it stands.

    Attributes:
        weights: How much each client counts; declared sizes give them, or a query does.
    """

    def __init__(
        self, algorithm: Algorithm, budget: Budget, federation: FederationFacts, state: RunState
    ) -> None:
        self.algorithm, self._budget = algorithm, budget
        self.federation, self.state = federation, state
        self.weights = (
            compute_weights(algorithm.weights, federation.declared_sizes)
            if state.weights is None
            else state.weights
        )

    @property
    def round_sum(self) -> RoundSum:
        """What clients add to a secure sum of this round."""
        state, declared_sizes = self.state, self.federation.declared_sizes
        if self.algorithm.placement is NoisePlacement.ROUND_SUM or state.samples is None:
            return RoundSum.of_updates(state.clients, len(declared_sizes))
        rate = self.algorithm.local.optimiser.rate
        return RoundSum.of_steps(state.samples, self.weights, declared_sizes, rate)

    @property
    def horizon(self) -> int:
        """How many releases of the present kind are still to come; 0 where that is not known."""
        if self._budget.rounds is None or self.algorithm.schedule:
            return 0
        releases = self.algorithm.releases_in(self._budget.rounds)
        return max(releases - self.releases, 0)

    @property
    def releases(self) -> int:
        """How many of its private releases the run has made."""
        return self.algorithm.releases_made(self.state.round, self.state.iterations)

    def training(self, clients: Sequence[int], steps: int) -> RoundRequest:
        """Builds the request of a training round.

        Args:
            clients: The cohort.
            steps: Local steps of each client.

        Returns:
            One task per client, from the global model.
        """
        sums = self.round_sum if self.algorithm.noise_shares else None
        tasks = tuple(
            replace(self._task(client, steps), secure_sum=sums.terms(client) if sums else None)
            for client in clients
        )
        return self._request(steps, tasks, self._client_state(clients))

    def query(
        self, clients: Sequence[int], query: PrivateQuery, terms: SecureSumTerms | None = None
    ) -> RoundRequest:
        """Builds the request that asks a private query.

        Args:
            clients: Who is asked.
            query: The query; the algorithm's metric is about the model that the run shows.
            terms: The terms of a secure sum of the answers, if there is one.

        Returns:
            One task per client, without steps.
        """
        tasks = tuple(
            replace(self._task(client, 0), query=query, secure_sum=terms) for client in clients
        )
        request = self._request(0, tasks, {})
        if query.asks_metric:
            return replace(request, vector=self.state.model)
        return request

    def raw_again(self, start: Tensor, updates: Mapping[int, Tensor]) -> RoundRequest:
        """Builds the request for raw values that compare the new model with each client's own.

        Args:
            start: The model that the clients started from.
            updates: Their updates.

        Returns:
            One task per client, without steps, and the client's own model beside it.
        """
        own = {client: start + update for client, update in updates.items()}
        return replace(self.training(tuple(updates), 0), corrections=own)

    def public_training(self, steps: int, samples: Release) -> RoundRequest:
        """Builds the request for raw values of public clients, who add no noise.

        Args:
            steps: Local steps of each client.
            samples: The release of samples in a step.

        Returns:
            One task per public client.
        """
        request = self.training(self.federation.public, steps)
        bare = replace(samples, noise=None)
        tasks = (
            replace(task, samples=bare, raw=True, slope=False, raw_values=RAW_VALUES)
            for task in request.tasks
        )
        return replace(request, tasks=tuple(tasks))

    def public_norms(self) -> RoundRequest:
        """Builds the request for gradient norms of public clients.

        Returns:
            One task per public client, with one step.
        """
        return asking_norms(self.training(self.federation.public, 1))

    def unclipped_updates(
        self, clients: Sequence[int], steps: int, round: int, vector: Tensor
    ) -> RoundRequest:
        """Builds the request for updates as they are, neither clipped nor with noise on their sum.

        Args:
            clients: Who is asked.
            steps: Local steps of each client.
            round: The number that keys the clients' batches.
            vector: The model that the clients start from.

        Returns:
            One task per client.
        """
        request = self.training(clients, steps)
        release = Release(self.state.clients.sampling, NoClip())
        tasks = (replace(task, clients=release, round=round) for task in request.tasks)
        return replace(request, round=round, tasks=tuple(tasks), vector=vector)

    def _task(self, client: int, steps: int) -> ClientTask:
        algorithm, state = self.algorithm, self.state
        return ClientTask(
            state.round,
            client,
            steps,
            algorithm.local,
            state.clients,
            release_of_client(algorithm.schedule, state.samples, client, state.memory),
            self.horizon,
            raw=algorithm.steps.asks_raw,
            update=self._update_release(client),
            slope=algorithm.steps.paid_slopes > 0,
            raw_values=algorithm.steps.raw_values,
        )

    def _update_release(self, client: int) -> UpdateRelease | None:
        """Returns the update release with noise for the client's declared size."""
        declared_sizes = self.federation.declared_sizes
        if client >= len(declared_sizes):
            return self.algorithm.updates
        return self.algorithm.for_client_size(declared_sizes[client]).updates

    def _request(
        self, steps: int, tasks: tuple[ClientTask, ...], corrections: Mapping[int, Tensor]
    ) -> RoundRequest:
        state = self.state
        return RoundRequest(state.round, steps, tasks, state.vector, corrections)

    def _client_state(self, clients: Sequence[int]) -> Mapping[int, Tensor]:
        """Returns what the server keeps for each client, where it keeps something."""
        rule = self.algorithm.client_state
        return rule.for_clients(self.client_vectors(), tuple(clients)) if rule else {}

    def client_vectors(self) -> Tensor:
        """Returns the vectors that the server keeps for the clients, new ones in the first round.

        Returns:
            One row per client.
        """
        rule, state = self.algorithm.client_state, self.state
        assert rule is not None
        if state.client_vectors is None:
            clients, layout = len(self.federation.declared_sizes), self.federation.layout
            state.client_vectors = rule.initial(clients, layout)
        return state.client_vectors
