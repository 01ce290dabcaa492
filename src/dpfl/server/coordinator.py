"""The server's side of a round.

    request = coordinator.next_request()   # 1  sample a cohort and choose tau, inside every budget
    replies = engine.run(request)          # 2  clients debit their ledgers, train and release
    coordinator.aggregate(replies)         # 3  weigh, sum, add noise, take the server's step
    coordinator.close_round(request.steps) # 4  count what the round used

One round of federated training with weights w_i, cohort S and server step eta_s is

    x <- x + eta_s (sum_{i in S} w_i d_i + noise) / D.

The update d_i of a client carries its own noise, or the noise is on the sum (`placement`), where
the server adds it, or each client a share of it (`noise_shares`). The divisor D is then fixed
before the draw, so that nobody's presence changes it. The step policy chooses tau, within what the
client with the fewest steps left can pay (`Coordinator._steps`).

Before the first round the coordinator asks for weights, means, scales of columns or clips, if the
algorithm needs them, and after the last round for a metric. The same engine and ledgers serve.

`RunState` is all that a round changes, and all that a checkpoint holds. A coordinator that is built
from a checkpoint repeats the unfinished round with the same model and the same keys. With keyed
noise and without secure sums, the values are the same too.
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
from dpfl.privacy.queries.mean import MeanAnswer
from dpfl.privacy.queries.query import PrivateQuery
from dpfl.server.aggregation.aggregate import reply_fault, select_usable
from dpfl.server.aggregation.mean_update import MeanUpdate
from dpfl.server.aggregation.private_answers import PrivateAnswers
from dpfl.server.aggregation.round_sum import AddIntegers, AnswerSum, add_integers
from dpfl.server.aggregation.weights import compute_weights
from dpfl.server.algorithm import Algorithm
from dpfl.server.clock import RunClock
from dpfl.server.debits import count_debits
from dpfl.server.public_clips import (
    norms_without_privacy,
    of_public_samples,
    of_public_updates,
    rounds_of,
)
from dpfl.server.requests import RequestBuilder
from dpfl.server.schedules import followed_release
from dpfl.server.state import METRIC, FederationFacts, RunState, keep_variances_positive, step_facts
from dpfl.server.steps.policy import RoundObservation, StepContext, choose_steps


class Coordinator:
    """Runs the server's side of every round.

    Args:
        algorithm: The algorithm for its model and rounds.
        budget: When the run ends.
        federation: The federation as the server knows it.
        state: The run as it stands; changed in place.
        randomness: Draws the cohorts and the server's noise.
        probe: Sends a request to its clients, and returns their replies.
        validate: Computes the loss of a model on public data, for schedules that follow it.
        add: Adds up the numbers that clients send to a secure sum.

    Attributes:
        stopped_by: What ended the run, such as "epsilon" or "rounds"; empty while it goes on.
        lost_replies: Replies that could not be used, one line each.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        budget: Budget,
        federation: FederationFacts,
        state: RunState,
        randomness: Randomness,
        probe: Callable[[RoundRequest], list[ClientReply]],
        validate: Callable[[Tensor], float],
        add: AddIntegers = add_integers,
    ) -> None:
        self.algorithm, self.budget = algorithm, budget
        self.federation, self.state = federation, state
        self.stopped_by = ""
        self.lost_replies = list(state.lost_replies)
        self._randomness, self._probe, self._validate, self._add = randomness, probe, validate, add
        self._requests = RequestBuilder(algorithm, budget, federation, state)
        self._mean_update = MeanUpdate(self._requests, randomness, add, self.lost_replies)
        self._update_step_facts()
        self._clock = RunClock(state)
        self._cohort: tuple[int, ...] = ()
        self._paying: list[int] = []
        self._tau = 0
        self._public: dict[int, Mapping[str, np.ndarray]] = {}

    def next_request(self) -> RoundRequest | None:
        """Samples a cohort and chooses tau, inside every budget (step 1 of a round).

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
        self._cohort = self._draw_cohort(state.round)
        if shares and len(self._cohort) < shares.survivors:
            self.stopped_by = "survivors"
            return None
        if not self._count_traffic(self.cohort_size):
            return None
        self._tau = steps
        if self.algorithm.steps.asks_public and state.samples is not None:
            request = self._requests.public_training(steps, state.samples)
            self._public = reply_values(self._probe(request))
        return self._requests.training(self._cohort, steps)

    def aggregate(self, replies: Sequence[ClientReply]) -> None:
        """Weighs and sums the replies, adds noise, and takes the server's step (step 3 of a round).

        Args:
            replies: One for each task of the request.

        Raises:
            BudgetRefusal: The federation's ledger has no room for the round.
            DivergenceError: A client's training left all bounds.
        """
        state, algorithm = self.state, self.algorithm
        good = self._usable(replies)
        self._paying = [reply.client for reply in replies if not (reply.refusal or reply.failure)]
        update = self._mean_update.of(good)
        if update is None:
            return
        start = state.vector
        rng = self._randomness.generator("noise on the way down", state.round)
        state.vector, state.velocity = algorithm.server.step(
            state.vector, state.velocity, update, rng
        )
        keep_variances_positive(state.vector, self.federation.layout)
        state.average = algorithm.server.next_average(state.average, state.vector, state.round + 1)
        if algorithm.placement is not NoisePlacement.ROUND_SUM:
            self._learn(good, start)

    def close_round(self, steps: int) -> None:
        """Counts what the round used (step 4 of a round).

        Args:
            steps: The local steps of the round's request.
        """
        state = self.state
        count_debits(self.algorithm, state, steps, self._cohort, self._paying)
        state.cohort_size = self.cohort_size
        state.round += 1
        state.tau = steps
        state.iterations += steps

    def measure(self) -> None:
        """Asks once, after the last round, how good the model is at the clients."""
        query, state, reason = self.algorithm.metric, self.state, self.stopped_by
        if query is None or METRIC in state.memory:
            return
        declared_sizes = self.federation.held_out or self.federation.declared_sizes
        answer = self._mean_answer(query, range(len(declared_sizes)), declared_sizes, query.width)
        self.stopped_by = reason
        if answer:
            head = torch.tensor([answer.units, answer.noise]).double()
            state.memory[METRIC] = torch.cat([head, answer.mean])

    @property
    def releases(self) -> int:
        """How many of its private releases the run has made."""
        return self._requests.releases

    @property
    def cohort_size(self) -> int:
        """The size of the cohort, for the record. Where a trusted server hides who was drawn, it is
        the expected size.
        """
        if self.algorithm.trusts_server:
            return round(
                self.state.clients.sampling.expected_size(len(self.federation.declared_sizes))
            )
        return len(self._cohort)

    # Budgets

    def _affordable_steps(self, account: int) -> int:
        """Returns how many releases an account has left for steps."""
        return self.state.remaining[account] - self.algorithm.steps.paid_slopes

    def _out_of_time(self) -> bool:
        self.stopped_by = self._clock.ends(self.budget, self.state)
        return bool(self.stopped_by)

    def _out_of_privacy(self) -> bool:
        accounts = range(len(self.state.remaining))
        if self.algorithm.has_noise and not any(self._affordable_steps(n) > 0 for n in accounts):
            self.stopped_by = "epsilon"
        return bool(self.stopped_by)

    def _count_traffic(self, clients: int) -> bool:
        """Counts the model down and the update up, four bytes per number. A secure sum has more.
        Returns False, and counts nothing, where that would exceed the budget.
        """
        layout = self.federation.layout
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
        return PrivateAnswers(self._requests, self._ask_within_budget, self._add, self.lost_replies)

    def _ask_within_budget(self, request: RoundRequest) -> list[ClientReply]:
        """Sends a query, if its traffic fits the budget. An answer is no longer than a model, and
        counts as one.
        """
        return self._probe(request) if self._count_traffic(len(request.tasks)) else []

    # Cohort and steps

    def _draw_cohort(self, round: int) -> tuple[int, ...]:
        """Draws the cohort. In a secure sum of clients it is everybody, and each draws for
        itself.
        """
        population, rng = (
            len(self.federation.declared_sizes),
            self._randomness.generator("cohort", round),
        )
        cohort: Sequence[int] | np.ndarray = range(population)
        if not self.algorithm.noise_shares:
            cohort = self.state.clients.sampling.draw(population, rng, round)
        return tuple(int(client) for client in cohort if self._can_pay(client))

    def _can_pay(self, client: int) -> bool:
        return not self.algorithm.ledger_per_client or self._affordable_steps(client) > 0

    def _steps(self) -> int:
        """Chooses tau within the steps that privacy leaves to the client with the fewest left."""
        state, remaining = self.state, MAX_RELEASES
        if self.algorithm.placement is NoisePlacement.EVERY_STEP:
            accounts = [self._affordable_steps(client) for client in range(len(state.remaining))]
            remaining = min((count for count in accounts if count > 0), default=MAX_RELEASES)
        facts, allowed_steps = self._step_facts, state.iterations + remaining
        context = StepContext(facts, allowed_steps, remaining, state.tau, state.memory, state.round)
        return min(choose_steps(self.algorithm.steps, context), remaining)

    def _update_step_facts(self) -> None:
        self._step_facts = step_facts(
            self.algorithm, self.budget, self.federation, self.state, self._requests.weights
        )

    # Before the first round

    def _when(self, query: PrivateQuery) -> str:
        return "after the last round" if query.asks_metric else "before round 1"

    def _mean_answer(
        self, query: PrivateQuery, clients: Sequence[int], declared_sizes: Sequence[int], width: int
    ) -> MeanAnswer | None:
        when, shares = self._when(query), self.algorithm.noise_shares
        if shares is None:
            return self._answers.mean(query, clients, declared_sizes, width, when)
        sums = AnswerSum(query, shares, width, declared_sizes)
        return self._answers.summed_mean(sums, clients, self.state.round, when)

    def _find_weights(self) -> None:
        """Asks clients for what their weights depend on, by a release that they pay for."""
        query, declared_sizes = self.algorithm.weights.query, self.federation.declared_sizes
        if query is None or self.state.weights is not None:
            return
        answers = self._answers.of_clients(query, range(len(declared_sizes)), self._when(query))
        if self.stopped_by:
            return
        weights = compute_weights(self.algorithm.weights, declared_sizes, answers)
        self.state.weights = self._requests.weights = weights
        self._update_step_facts()

    def _find_centre_and_scales(self) -> None:
        """Asks for the mean of all samples, and for the scales of a table's columns, and writes
        them into the model.

        A client that could not pay for a step afterwards is not asked.
        """
        layout, declared_sizes = self.federation.layout, self.federation.declared_sizes
        for query, span in (
            (self.algorithm.centre, layout.centre),
            (self.algorithm.columns, layout.paid_scales),
        ):
            if query is None or span is None or self.state.round > 0 or self.stopped_by:
                continue
            able = [client for client in range(len(declared_sizes)) if self._can_pay(client)]
            width = query.answer_width(span.stop - span.start)
            if answer := self._mean_answer(query, able, declared_sizes, width):
                self.state.vector = self.state.vector.clone()
                self.state.vector[span] = query.estimate(answer)

    def _find_clips(self) -> None:
        """Sets clips from public clients, whose updates are neither clipped nor counted; or, as
        published, from a run without privacy.
        """
        state = self.state
        if state.clients.clip.follows_public:
            updates = self._ask_unclipped(self.federation.public, state.round, state.vector)
            state.clients = of_public_updates(state.clients, updates)
        if state.round == 0 and state.samples and state.samples.clip.follows_public:
            replies = self._probe(self._requests.public_norms())
            state.samples, state.clients = of_public_samples(
                state.samples, state.clients, replies, self.algorithm.placement
            )
            self._update_step_facts()
        if state.round == 0 and (clip := state.clients.clip).follows_raw:
            norms = norms_without_privacy(
                self._train_without_privacy,
                rounds_of(clip, self.budget),
                state.vector,
                self._requests.weights,
                self.algorithm.server,
            )
            state.clients = replace(state.clients, clip=clip.adapt(norms))

    def _train_without_privacy(self, round: int, vector: Tensor) -> list[ClientReply]:
        return self._ask_unclipped(self._draw_cohort(round), round, vector)

    def _ask_unclipped(
        self, clients: Sequence[int], round: int, vector: Tensor
    ) -> list[ClientReply]:
        return self._probe(self._requests.unclipped_updates(clients, self._steps(), round, vector))

    def _follow_schedule(self) -> None:
        """Sets the release of this round, where it changes from round to round."""
        schedule, first, state = self.algorithm.schedule, self.algorithm.release, self.state
        if schedule is None or first is None:
            return
        release = followed_release(schedule, first, state.round, state.memory)
        if self.algorithm.placement is NoisePlacement.EVERY_STEP:
            state.samples = release
        else:
            state.clients = release
        self._update_step_facts()

    # From one round to the next

    def _usable(self, replies: Sequence[ClientReply]) -> list[ClientReply]:
        """Selects the replies that count. A refusal or a failure costs its own reply only."""
        for reply in replies:
            if reply.refusal and self.algorithm.ledger_per_client:
                self.state.remaining[reply.client] = 0
        layout = self.federation.layout
        faulty = partial(reply_fault, size=layout.size)
        if self.algorithm.noise_shares:
            faulty = partial(self._requests.round_sum.numbers_fault, layout=layout)
        good, complaints = select_usable(replies, self.state.round + 1, faulty)
        self.lost_replies += complaints
        return good

    def _learn(self, good: Sequence[ClientReply], start: Tensor) -> None:
        """Remembers what the next round takes from this one: released updates, and raw values where
        the step policy asks for them.
        """
        updates = {reply.client: reply.update for reply in good if reply.update is not None}
        if not updates:
            return
        raw, memory = reply_values(good), self.state.memory
        again = partial(self._ask_again, start, updates if raw else {})
        observation = RoundObservation(
            self._step_facts, self.state.round, self._tau, start, updates, raw, self._public, again
        )
        if rule := self.algorithm.client_state:
            vectors = self._requests.client_vectors()
            self.state.client_vectors = rule.after_round(vectors, observation)
        self.state.memory = self.algorithm.steps.learn(observation, memory)
        if self.algorithm.schedule:
            self.state.memory |= self.algorithm.schedule.learn(observation, self._validate, memory)

    def _ask_again(
        self, start: Tensor, updates: Mapping[int, Tensor]
    ) -> dict[int, Mapping[str, np.ndarray]]:
        return reply_values(self._probe(self._requests.raw_again(start, updates)))
