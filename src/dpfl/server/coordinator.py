"""The server's side of a round.

    request = coordinator.next_order()     # 1  sample a cohort and choose tau, inside every budget
    replies = engine.run(request)          # 2  clients debit their ledgers, train and release
    coordinator.aggregate(replies)         # 3  weigh, sum, add noise, take the server's step
    coordinator.close_round(request.steps) # 4  count what the round used

One round of federated training with weights w_i, cohort S and server step eta_s is

    x <- x + eta_s (sum_{i in S} w_i d_i + noise) / D.

The update d_i of a client carries its own noise, or the server adds noise to the sum, or each
client adds a share of it inside a secure sum: `Algorithm.placement` says which. The divisor D is
fixed before the draw where noise is on the sum, so that nobody's presence changes it.

Before the first round the coordinator asks what the algorithm needs to start: weights, the mean of
the samples, scales of columns, clips. After the last it may ask a metric. These requests take the
same way through the engine as a round, and are paid for in the same ledgers.

`RunState` is all that a round changes, and all that a checkpoint holds. A coordinator that is built
from a checkpoint makes the round under way again: same model, same keys, same values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from dpfl.client.noise_placement import NoisePlacement
from dpfl.client.task import ClientReply, RoundRequest, reply_values
from dpfl.privacy import Budget, Randomness
from dpfl.privacy.accounting.calibration import MAX_RELEASES
from dpfl.privacy.mechanisms.noise_shares import NoiseShares
from dpfl.privacy.queries.mean import MeanAnswer
from dpfl.privacy.queries.query import PrivateQuery
from dpfl.server.aggregate import (
    correlated_sum,
    fault,
    mean,
    noisy_inside_fraction,
    noisy_sum,
    usable,
    weighted_sum,
)
from dpfl.server.algorithm import Algorithm
from dpfl.server.clock import RunClock
from dpfl.server.debits import debit_round
from dpfl.server.private_answers import PrivateAnswers
from dpfl.server.public_clips import (
    norms_without_privacy,
    of_public_samples,
    of_public_updates,
    rounds_of,
)
from dpfl.server.requests import RequestBuilder
from dpfl.server.round_sum import Add, AnswerSum, open_sum, plain
from dpfl.server.schedules import followed_release
from dpfl.server.state import (
    METRIC,
    PAST_NOISE,
    FederationFacts,
    RunState,
    facts,
    keep_variances_positive,
)
from dpfl.server.steps.policy import RoundObservation, StepContext, choose_steps
from dpfl.server.weights import compute_weights


class Coordinator:
    """Runs the server's side of every round.

    Args:
        algorithm: The algorithm, fitted to model and rounds.
        budget: When the run ends.
        federated: The federation as the server knows it.
        state: What the run has come to; changed in place.
        randomness: Where cohorts and the server's noise are drawn from.
        probe: Sends a request to its clients, and returns their replies.
        validate: The loss of a model on public data, for schedules that follow it.
        add: Adds up the numbers that clients send to a secure sum.

    Attributes:
        stopped_by: The budget that ended the run; empty while it goes on.
        lost: Replies that came to nothing, a line each.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        budget: Budget,
        federated: FederationFacts,
        state: RunState,
        randomness: Randomness,
        probe: Callable[[RoundRequest], list[ClientReply]],
        validate: Callable[[Tensor], float],
        add: Add = plain,
    ) -> None:
        self.algorithm, self.budget = algorithm, budget
        self.federated, self.state = federated, state
        self.stopped_by = ""
        self.lost = list(state.lost)
        self._randomness, self._probe, self._validate, self._add = randomness, probe, validate, add
        self._requests = RequestBuilder(algorithm, budget, federated, state)
        self._update_facts()
        self._clock = RunClock(state)
        self._cohort: tuple[int, ...] = ()
        self._paying: list[int] = []
        self._taken = 0
        self._public: dict[int, Mapping[str, np.ndarray]] = {}

    def next_order(self) -> RoundRequest | None:
        """1: samples a cohort and chooses tau, inside every budget.

        Returns:
            The request of the next round; None at the end, with the reason in `stopped_by`.
        """
        state, shares = self.state, self.algorithm.noise_shares
        if self.stopped_by or self._out_of_time() or self._out_of_privacy():
            return None
        self._find_weights()
        self._find_centre_and_scales()
        if self.stopped_by:
            return None
        self._find_clips()
        self._follow_schedule()
        steps = self._steps()
        self._cohort = self._drawn(state.round)
        if shares and len(self._cohort) < shares.survivors:
            self.stopped_by = "survivors"
            return None
        if not self._send(self.clients_shown):
            return None
        self._taken = steps
        if self.algorithm.steps.asks_public and state.samples is not None:
            request = self._requests.public_training(steps, state.samples)
            self._public = reply_values(self._probe(request))
        return self._requests.training(self._cohort, steps)

    def aggregate(self, replies: Sequence[ClientReply]) -> None:
        """3: weighs, sums, adds noise, and takes the server's step.

        Args:
            replies: One for each task of the request.

        Raises:
            BudgetRefusal: The federation's ledger has no room for the round.
            Diverged: A client's training left all bounds.
        """
        state, algorithm = self.state, self.algorithm
        good = self._usable(replies)
        self._paying = [reply.client for reply in replies if not (reply.refused or reply.failed)]
        update = self._mean_update(good)
        if update is None:
            return
        sent = state.vector
        rng = self._randomness.generator("noise on the way down", state.round)
        state.vector, state.velocity = algorithm.server.step(
            state.vector, state.velocity, update, rng
        )
        keep_variances_positive(state.vector, self.federated.layout)
        state.average = algorithm.server.averaged(state.average, state.vector, state.round + 1)
        if algorithm.placement is not NoisePlacement.ROUND_SUM:
            self._learn(good, sent)

    def close_round(self, steps: int) -> None:
        """4: counts what the round used.

        Args:
            steps: The local steps of the round's request.
        """
        state, algorithm = self.state, self.algorithm
        if algorithm.ledger_per_client:
            in_steps = algorithm.placement is NoisePlacement.EVERY_STEP
            releases = steps + algorithm.steps.extra if in_steps else 1
            for client in self._cohort:
                state.remaining[client] = max(0, state.remaining[client] - releases)
            for client in self._paying:
                state.paid[client] += releases
        elif algorithm.clients.whole_run:
            state.paid[0] = 1
        elif algorithm.placement is NoisePlacement.ROUND_SUM:
            state.remaining[0] -= 1
            state.paid[0] += 1
        state.shown = self.clients_shown
        state.round += 1
        state.tau = steps
        state.iterations += steps

    def measure(self) -> None:
        """Asks once, after the last round, how good the model is at the clients."""
        query, state, ended = self.algorithm.metric, self.state, self.stopped_by
        if query is None or METRIC in state.memory:
            return
        declared = self.federated.held_out or self.federated.declared
        answer = self._mean_answer(query, range(len(declared)), declared, query.width)
        self.stopped_by = ended
        if answer:
            head = torch.tensor([answer.units, answer.noise]).double()
            state.memory[METRIC] = torch.cat([head, answer.mean])

    @property
    def releases(self) -> int:
        """How many of its private releases the run has made."""
        return self._requests.releases

    @property
    def clients_shown(self) -> int:
        """The size of the cohort, for the record. Where clients are protected it is the expected
        size, since who was drawn stays secret.
        """
        if self.algorithm.trusts_server:
            return round(self.state.clients.sampling.expected_size(len(self.federated.declared)))
        return len(self._cohort)

    # Budgets

    def _left(self, account: int) -> int:
        """Releases that an account leaves for steps."""
        return self.state.remaining[account] - self.algorithm.steps.extra

    def _out_of_time(self) -> bool:
        self.stopped_by = self._clock.ends(self.budget, self.state)
        return bool(self.stopped_by)

    def _out_of_privacy(self) -> bool:
        accounts = range(len(self.state.remaining))
        if self.algorithm.unit != "none" and not any(self._left(n) > 0 for n in accounts):
            self.stopped_by = "epsilon"
        return bool(self.stopped_by)

    def _send(self, clients: int) -> bool:
        """Counts the model down and the update up, four bytes a number; a secure sum has more. No
        budget is exceeded.
        """
        layout = self.federated.layout
        each = 2 * 4 * layout.size
        if self.algorithm.noise_shares:
            each = self._requests.round_sum.traffic(layout)
        traffic = clients * each
        if self.budget.bytes is not None and self.state.bytes + traffic > self.budget.bytes:
            self.stopped_by = "bytes"
            return False
        self.state.bytes += traffic
        return True

    @property
    def _answers(self) -> PrivateAnswers:
        # It refers to this object, which would then hold itself, and all data, in memory.
        return PrivateAnswers(self._requests, self._ask_within_budget, self._add, self.lost)

    def _ask_within_budget(self, request: RoundRequest) -> list[ClientReply]:
        """An answer is no longer than a model, and counts as one."""
        return self._probe(request) if self._send(len(request.tasks)) else []

    # Cohort and steps

    def _drawn(self, round: int) -> tuple[int, ...]:
        """The cohort; in a secure sum of clients it is everybody, and each draws for itself."""
        population, rng = len(self.federated.declared), self._randomness.generator("cohort", round)
        drawn: Sequence[int] | np.ndarray = range(population)
        if not self.algorithm.noise_shares:
            drawn = self.state.clients.sampling.draw(population, rng, round)
        per_client = self.algorithm.ledger_per_client
        return tuple(int(client) for client in drawn if not per_client or self._left(client) > 0)

    def _steps(self) -> int:
        """tau, inside what privacy leaves to the client that has least."""
        state, left = self.state, MAX_RELEASES
        if self.algorithm.placement is NoisePlacement.EVERY_STEP:
            lefts = [self._left(client) for client in range(len(state.remaining))]
            left = min((left for left in lefts if left > 0), default=MAX_RELEASES)
        now = StepContext(
            self._facts, state.iterations + left, left, state.tau, state.memory, state.round
        )
        return min(choose_steps(self.algorithm.steps, now), left)

    def _update_facts(self) -> None:
        self._facts = facts(
            self.algorithm, self.budget, self.federated, self.state, self._requests.weights
        )

    # Before the first round

    def _when(self, query: PrivateQuery) -> str:
        return "after the last round" if query is self.algorithm.metric else "before round 1"

    def _mean_answer(
        self, query: PrivateQuery, clients: Sequence[int], declared: Sequence[int], width: int
    ) -> MeanAnswer | None:
        when, shares = self._when(query), self.algorithm.noise_shares
        if shares is None:
            return self._answers.mean(query, clients, declared, width, when)
        sums = AnswerSum(query, shares, width, declared)
        return self._answers.summed_mean(sums, clients, self.state.round, when)

    def _find_weights(self) -> None:
        """Weights that clients are asked for, by a release that they pay for."""
        query, declared = self.algorithm.weights.query, self.federated.declared
        if query is None or self.state.weights is not None:
            return
        answers = self._answers.of_clients(query, range(len(declared)), self._when(query))
        if self.stopped_by:
            return
        weights = compute_weights(self.algorithm.weights, declared, answers)
        self.state.weights = self._requests.weights = weights
        self._update_facts()

    def _find_centre_and_scales(self) -> None:
        """The mean of all samples, or the scales of a table's columns, into the model's entries.

        A client that has no room for a step after it is not asked to pay.
        """
        layout, declared = self.federated.layout, self.federated.declared
        per_client = self.algorithm.ledger_per_client
        for query, span in (
            (self.algorithm.centre, layout.centre),
            (self.algorithm.columns, layout.paid_scales),
        ):
            if query is None or span is None or self.state.round > 0 or self.stopped_by:
                continue
            able = [n for n in range(len(declared)) if not per_client or self._left(n) > 0]
            width = query.answer_width(span.stop - span.start)
            if answer := self._mean_answer(query, able, declared, width):
                self.state.vector = self.state.vector.clone()
                self.state.vector[span] = query.estimate(answer)

    def _find_clips(self) -> None:
        """Clips from public clients, who are never clipped nor counted; or, as published, from a
        run without privacy.
        """
        state = self.state
        if state.clients.clip.adapts_to == "public":
            updates = self._unclipped(self.federated.public, state.round, state.vector)
            state.clients = of_public_updates(state.clients, updates)
        if state.round == 0 and state.samples and state.samples.clip.adapts_to == "public":
            replies = self._probe(self._requests.public_norms())
            state.samples, state.clients = of_public_samples(
                state.samples, state.clients, replies, self.algorithm.placement
            )
            self._update_facts()
        if state.round == 0 and (clip := state.clients.clip).adapts_to == "raw":
            without = partial(norms_without_privacy, self._trained, rounds_of(clip, self.budget))
            norms = without(state.vector, self._requests.weights, self.algorithm.server)
            state.clients = replace(state.clients, clip=clip.adapt(norms))

    def _trained(self, round: int, vector: Tensor) -> list[ClientReply]:
        return self._unclipped(self._drawn(round), round, vector)

    def _unclipped(self, clients: Sequence[int], round: int, vector: Tensor) -> list[ClientReply]:
        return self._probe(self._requests.unclipped(clients, self._steps(), round, vector))

    def _follow_schedule(self) -> None:
        """The release of this round, where it changes from round to round."""
        schedule, first, state = self.algorithm.schedule, self.algorithm.release, self.state
        if schedule is None or first is None:
            return
        release = followed_release(schedule, first, state.round, state.memory)
        if self.algorithm.placement is NoisePlacement.EVERY_STEP:
            state.samples = release
        else:
            state.clients = release
        self._update_facts()

    # From replies to a mean update

    def _usable(self, replies: Sequence[ClientReply]) -> list[ClientReply]:
        """A refusal or a failure costs its own reply only."""
        for reply in replies:
            if reply.refused and self.algorithm.ledger_per_client:
                self.state.remaining[reply.client] = 0
        layout = self.federated.layout
        faulty = partial(fault, size=layout.size)
        if self.algorithm.noise_shares:
            faulty = partial(self._requests.round_sum.fault, layout=layout)
        good, lost = usable(replies, self.state.round + 1, faulty)
        self.lost += lost
        return good

    def _mean_update(self, good: Sequence[ClientReply]) -> Tensor | None:
        """The mean update of the round, noisy where noise is anywhere; None where a secure sum was
        not opened.
        """
        weights, size = self._requests.weights, self.federated.layout.size
        if self.algorithm.noise_shares:
            return self._opened(good, self.algorithm.noise_shares)
        if self.algorithm.placement is not NoisePlacement.ROUND_SUM:
            return mean(good, weights, size)
        total = weighted_sum(good, weights, size)
        inside = sum(reply.inside for reply in good)
        randomness = debit_round(
            self.federated, self.state, total, inside, self._requests.horizon, self._randomness
        )
        update = self._noisy(total, len(good), randomness).div_(self._divisor)
        self._adapt_quantile(good, randomness)
        return update

    def _opened(self, good: Sequence[ClientReply], shares: NoiseShares) -> Tensor | None:
        """The mean update from a sum of whole numbers; a round whose sum is not opened was paid
        for, and moves nothing.
        """
        state, weights = self.state, self._requests.weights
        numbers = {reply.client: reply.numbers for reply in good if reply.numbers is not None}
        round_sum, layout = self._requests.round_sum, self.federated.layout
        summed = partial(round_sum.update, numbers, self._add, state.round, layout)
        opened = open_sum(numbers, shares, summed, f"round {state.round + 1}", self.lost)
        if opened is None:
            return None
        update, count = opened
        share = float(sum(weights[reply.client] for reply in good)) or 1.0
        update.div_(
            self._divisor if self.algorithm.placement is NoisePlacement.ROUND_SUM else share
        )
        if count is not None:
            expected = state.clients.sampling.expected_size(len(self.federated.declared))
            clip = state.clients.clip.adapt(count / expected + 0.5)
            state.clients = replace(state.clients, clip=clip)
        return update

    @property
    def _divisor(self) -> float:
        """The expected cohort times the mean weight, as far as it is public; fixed before the
        draw.
        """
        declared = self.federated.declared
        expected = self.state.clients.sampling.expected_size(len(declared))
        return expected * self.algorithm.weights.usual(declared)

    def _noisy(self, total: Tensor, replies: int, randomness: Randomness) -> Tensor:
        state, rng = self.state, randomness.generator("server noise", self.state.round)
        if (noise := state.clients.correlated) is None:
            return noisy_sum(total, replies, state.clients, rng)
        past = state.memory.get(PAST_NOISE, torch.empty(0, len(total)))
        noisy, state.memory[PAST_NOISE] = correlated_sum(total, noise, state.clients, past, rng)
        return noisy

    def _adapt_quantile(self, replies: Sequence[ClientReply], randomness: Randomness) -> None:
        """Only after the noisy sum is made with the clip that the clients used."""
        release = self.state.clients
        if release.clip.adapts_to == "count":
            rng = randomness.generator("count noise", self.state.round)
            expected = release.sampling.expected_size(len(self.federated.declared))
            fraction = noisy_inside_fraction(replies, release, expected, rng)
            self.state.clients = replace(release, clip=release.clip.adapt(fraction))

    # From one round to the next

    def _learn(self, good: Sequence[ClientReply], sent: Tensor) -> None:
        """What the next round takes from this one: released updates, and raw values where the step
        policy asks for them.
        """
        updates = {reply.client: reply.update for reply in good if reply.update is not None}
        if not updates:
            return
        raw, memory = reply_values(good), self.state.memory
        again = partial(self._again, sent, updates if raw else {})
        observation = RoundObservation(
            self._facts, self.state.round, self._taken, sent, updates, raw, self._public, again
        )
        if keeping := self.algorithm.kept:
            kept = self._requests.kept_vectors()
            self.state.kept = keeping.renewed(kept, observation)
        self.state.memory = self.algorithm.steps.learn(observation, memory)
        if self.algorithm.schedule:
            self.state.memory |= self.algorithm.schedule.learn(observation, self._validate, memory)

    def _again(
        self, sent: Tensor, updates: Mapping[int, Tensor]
    ) -> dict[int, Mapping[str, np.ndarray]]:
        return reply_values(self._probe(self._requests.raw_again(sent, updates)))
