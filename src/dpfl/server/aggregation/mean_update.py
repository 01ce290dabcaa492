"""Computes the mean update of a round from the replies that count, with its noise and its debit.

The mean update is sum_i w_i d_i / D. Where noise is on the sum, D is fixed before the draw: the
expected cohort times the usual weight. Elsewhere updates carry their own noise, and D is the weight
of those who replied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from dpfl.client.noise_placement import NoisePlacement
from dpfl.client.task import ClientReply
from dpfl.privacy import Randomness
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.server.aggregation.aggregate import (
    correlated_sum,
    mean,
    noisy_inside_fraction,
    noisy_sum,
    weighted_sum,
)
from dpfl.server.aggregation.round_sum import AddIntegers, open_sum
from dpfl.server.aggregation.weights import round_divisor
from dpfl.server.debits import debit_round
from dpfl.server.requests import RequestBuilder
from dpfl.server.state import PAST_NOISE


class MeanUpdate:
    """Computes the mean update of each round.

    Args:
        requests: The requests of the run, which know its algorithm, its state and its weights.
        randomness: Draws the server's noise.
        add: Adds up the numbers that clients send to a secure sum.
        complaints: Lines about replies that could not be used; more are added.
    """

    def __init__(
        self,
        requests: RequestBuilder,
        randomness: Randomness,
        add: AddIntegers,
        complaints: list[str],
    ) -> None:
        self._requests, self._randomness, self._add = requests, randomness, add
        self._complaints = complaints
        self._algorithm, self._federation = requests.algorithm, requests.federation
        self._state = requests.state

    def of(self, replies: Sequence[ClientReply]) -> Tensor | None:
        """Computes the mean update of a round. The federation's ledger pays before noise is added.

        A clip that follows a noisy count is adapted afterwards, so that the noise is for the clip
        that the clients used.

        Args:
            replies: The replies that count.

        Returns:
            The mean, noisy where noise is anywhere; None where a secure sum was not opened.

        Raises:
            BudgetRefusal: The federation's ledger has no room for the round.
        """
        weights, size = self._requests.weights, self._federation.layout.size
        if self._algorithm.noise_shares:
            return self._from_secure_sum(replies, self._algorithm.noise_shares)
        if self._algorithm.placement is not NoisePlacement.ROUND_SUM:
            return mean(replies, weights, size)
        total = weighted_sum(replies, weights, size)
        inside = sum(reply.inside for reply in replies)
        randomness = debit_round(
            self._federation, self._state, total, inside, self._requests.horizon, self._randomness
        )
        update = self._add_noise(total, len(replies), randomness).div_(self._divisor)
        self._adapt_quantile(replies, randomness)
        return update

    @property
    def _expected_cohort(self) -> float:
        return self._state.clients.sampling.expected_size(len(self._federation.declared_sizes))

    @property
    def _divisor(self) -> float:
        return round_divisor(
            self._state.clients, self._algorithm.weights, self._federation.declared_sizes
        )

    def _from_secure_sum(
        self, replies: Sequence[ClientReply], shares: NoiseShares
    ) -> Tensor | None:
        """Opens a sum of whole numbers. A round whose sum is not opened has cost its budget, and
        does not move the model.
        """
        state, weights = self._state, self._requests.weights
        numbers = {reply.client: reply.numbers for reply in replies if reply.numbers is not None}
        round_sum, layout = self._requests.round_sum, self._federation.layout
        compute = partial(round_sum.update, numbers, self._add, state.round, layout)
        result = open_sum(numbers, shares, compute, f"round {state.round + 1}", self._complaints)
        if result is None:
            return None
        update, count = result
        weight = float(sum(weights[reply.client] for reply in replies)) or 1.0
        of_sum = self._algorithm.placement is NoisePlacement.ROUND_SUM
        update.div_(self._divisor if of_sum else weight)
        if count is not None:
            clip = state.clients.clip.adapt(count / self._expected_cohort + 0.5)
            state.clients = replace(state.clients, clip=clip)
        return update

    def _add_noise(self, total: Tensor, replies: int, randomness: Randomness) -> Tensor:
        state, rng = self._state, randomness.generator("server noise", self._state.round)
        if (noise := state.clients.banded_noise) is None:
            return noisy_sum(total, replies, state.clients, rng)
        past = state.memory.get(PAST_NOISE, torch.empty(0, len(total)))
        noisy, state.memory[PAST_NOISE] = correlated_sum(total, noise, state.clients, past, rng)
        return noisy

    def _adapt_quantile(self, replies: Sequence[ClientReply], randomness: Randomness) -> None:
        """Adapts the clip, once the noisy sum exists with the clip that the clients used."""
        release = self._state.clients
        if release.clip.adapts_to == "count":
            rng = randomness.generator("count noise", self._state.round)
            fraction = noisy_inside_fraction(replies, release, self._expected_cohort, rng)
            self._state.clients = replace(release, clip=release.clip.adapt(fraction))
