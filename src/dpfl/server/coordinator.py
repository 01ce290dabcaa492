"""The server's side of a round: an order inside every budget, and the step that the replies
give.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from dpfl.client.noise_placement import NoisePlacement
from dpfl.client.task import RAW_VALUES, ClientReply, ClientTask, RoundRequest, reply_values
from dpfl.privacy import Budget, NoClip, Randomness, Release
from dpfl.privacy.accounting.calibration import MAX_RELEASES
from dpfl.privacy.mechanisms.adaptive_clip import adapt_clip
from dpfl.privacy.mechanisms.noise_shares import NoiseShares
from dpfl.privacy.mechanisms.update_release import UpdateRelease
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
from dpfl.server.client_state import ClientState
from dpfl.server.clock import RunClock
from dpfl.server.debits import debit_round
from dpfl.server.public_clips import (
    asking_norms,
    norms_without_privacy,
    of_public_samples,
    of_public_updates,
    rounds_of,
)
from dpfl.server.round_sum import Add, AnswerSum, RoundSum, open_sum, plain
from dpfl.server.schedules import followed_release, own_of
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
        self.algorithm, self.budget, self.federated, self.state = (
            algorithm,
            budget,
            federated,
            state,
        )
        self.stopped_by = ""
        self.lost = list(state.lost)
        self._randomness, self._probe, self._validate, self._add = randomness, probe, validate, add
        self._weights = (
            compute_weights(algorithm.weights, federated.declared)
            if state.weights is None
            else state.weights
        )
        self._facts = facts(algorithm, budget, federated, state, self._weights)
        self._clock = RunClock(state)
        self._cohort: tuple[int, ...] = ()
        self._paying: list[int] = []
        self._taken = 0
        self._public: dict[int, Mapping[str, np.ndarray]] = {}

    def next_order(self) -> RoundRequest | None:
        """1: the cohort and tau, inside every budget; None is the end."""
        state = self.state
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
        if (
            self.algorithm.noise_shares
            and len(self._cohort) < self.algorithm.noise_shares.survivors
        ):
            self.stopped_by = "survivors"
            return None
        if not self._send(self.clients_shown):
            return None
        self._taken = steps
        self._ask_public(steps)
        return self._order(self._cohort, steps, state.clients)

    def _drawn(self, round: int) -> tuple[int, ...]:
        """Who is asked; in a secure sum of clients it is everybody, and each draws for itself."""
        everybody, rng = len(self.federated.declared), self._randomness.generator("cohort", round)
        drawn = (
            range(everybody)
            if self.algorithm.noise_shares
            else self.state.clients.sampling.draw(everybody, rng, round)
        )
        return tuple(
            int(client)
            for client in drawn
            if not self.algorithm.ledger_per_client or self._left(client) > 0
        )

    @property
    def _sum(self) -> RoundSum:
        state, declared = self.state, self.federated.declared
        if self.algorithm.placement is NoisePlacement.ROUND_SUM or state.samples is None:
            return RoundSum.of_updates(state.clients, len(declared))
        return RoundSum.of_steps(
            state.samples, self._weights, declared, self.algorithm.local.optimiser.rate
        )

    def _order(
        self,
        clients: Sequence[int],
        steps: int,
        release: Release,
        survey: PrivateQuery | None = None,
    ) -> RoundRequest:
        state = self.state
        task = ClientTask(
            state.round,
            0,
            steps,
            self.algorithm.local,
            release,
            state.samples,
            self._left_to_plan,
            raw=self.algorithm.steps.asks_raw,
            query=survey,
            slope=self._extra > 0,
            raw_values=self.algorithm.steps.raw_values,
        )
        sums = self._sum if self.algorithm.noise_shares and not survey else None
        tasks = tuple(
            replace(
                task,
                client=client,
                samples=own_of(self.algorithm.schedule, state.samples, client, state.memory),
                secure_sum=sums.asked(client) if sums else None,
                update=self._upload(client),
            )
            for client in clients
        )
        keeping = self.algorithm.kept
        sent = keeping.sent(self._kept(keeping), tuple(clients)) if keeping and not survey else {}
        return RoundRequest(state.round, steps, tasks, state.vector, sent)

    def _upload(self, client: int) -> UpdateRelease | None:
        """With the client's own noise, where that is by how many samples it declared."""
        declared = self.federated.declared
        return (
            self.algorithm.for_client_size(declared[client]).updates
            if client < len(declared)
            else self.algorithm.updates
        )

    @property
    def _left_to_plan(self) -> int:
        """How many releases of the present kind are still to come; 0 where that is not known."""
        if self.budget.rounds is None or self.algorithm.schedule:
            return 0
        return max(self.algorithm.releases_in(self.budget.rounds) - self.releases, 0)

    def _kept(self, keeping: ClientState) -> Tensor:
        if self.state.kept is None:
            self.state.kept = keeping.fresh(len(self.federated.declared), self.federated.layout)
        return self.state.kept

    @property
    def _extra(self) -> int:
        return self.algorithm.steps.extra

    def _left(self, account: int) -> int:
        """Releases that an account leaves for steps."""
        return self.state.remaining[account] - self._extra

    @property
    def releases(self) -> int:
        """How many of its private releases the run has made."""
        return self.algorithm.releases_made(self.state.round, self.state.iterations)

    @property
    def clients_shown(self) -> int:
        """The size of the cohort, for the record: at client level the expected one, since who was
        drawn stays secret.
        """
        if self.algorithm.trusts_server:
            return round(self.state.clients.sampling.expected_size(len(self.federated.declared)))
        return len(self._cohort)

    def _steps(self) -> int:
        """tau, inside what privacy leaves to the client that has least."""
        state, each = self.state, self.algorithm.placement is NoisePlacement.EVERY_STEP
        lefts = [self._left(client) for client in range(len(state.remaining))] if each else []
        left = min((left for left in lefts if left > 0), default=MAX_RELEASES)
        now = StepContext(
            self._facts, state.iterations + left, left, state.tau, state.memory, state.round
        )
        return min(choose_steps(self.algorithm.steps, now), left)

    def _out_of_time(self) -> bool:
        self.stopped_by = self._clock.ends(self.budget, self.state)
        return bool(self.stopped_by)

    def _out_of_privacy(self) -> bool:
        if self.algorithm.unit != "none" and not any(
            self._left(account) > 0 for account in range(len(self.state.remaining))
        ):
            self.stopped_by = "epsilon"
        return bool(self.stopped_by)

    def _send(self, clients: int) -> bool:
        """Count the model down and the update up, four bytes a number (a secure sum has more); no
        budget is exceeded.
        """
        layout = self.federated.layout
        traffic = clients * (
            self._sum.traffic(layout) if self.algorithm.noise_shares else 2 * 4 * layout.size
        )
        if self.budget.bytes is not None and self.state.bytes + traffic > self.budget.bytes:
            self.stopped_by = "bytes"
            return False
        self.state.bytes += traffic
        return True

    def _find_weights(self) -> None:
        """Once, before the first round: weights that clients are asked for, by a release that they
        pay for.
        """
        survey, declared = self.algorithm.weights.query, self.federated.declared
        if survey is None or self.state.weights is not None:
            return
        answers = self._answers(survey, range(len(declared)))
        if self.stopped_by:
            return
        self.state.weights = self._weights = compute_weights(
            self.algorithm.weights, declared, answers
        )
        self._facts = facts(self.algorithm, self.budget, self.federated, self.state, self._weights)

    def _find_centre_and_scales(self) -> None:
        """Before the first round: the mean of all samples, or the scales of a table's columns, by a
        release that clients pay for, into the model's own entries. Whoever has no room for a step
        after it is not asked to pay."""
        layout, declared, own = (
            self.federated.layout,
            self.federated.declared,
            self.algorithm.ledger_per_client,
        )
        for asked, span in (
            (self.algorithm.centre, layout.centre),
            (self.algorithm.columns, layout.paid_scales),
        ):
            if asked is None or span is None or self.state.round > 0 or self.stopped_by:
                continue
            able = [client for client in range(len(declared)) if not own or self._left(client) > 0]
            if said := self._mean(
                asked, able, declared, asked.answer_width(span.stop - span.start)
            ):
                self.state.vector = self.state.vector.clone()
                self.state.vector[span] = asked.estimate(said)

    def measure(self) -> None:
        """After the last round, once: how good the model is at the clients, by a release that they
        pay for.
        """
        asked, state, ended = self.algorithm.metric, self.state, self.stopped_by
        if asked is None or METRIC in state.memory:
            return
        sizes = self.federated.held_out or self.federated.declared
        said = self._mean(asked, range(len(sizes)), sizes, asked.width)
        self.stopped_by = ended
        if said:
            state.memory[METRIC] = torch.cat(
                [torch.tensor([said.units, said.noise]).double(), said.mean]
            )

    def _mean(
        self, survey: PrivateQuery, clients: Sequence[int], sizes: Sequence[int], width: int
    ) -> MeanAnswer | None:
        """What clients of these sizes say together, from the answer of each or from the sum of
        them, if anything.
        """
        if self.algorithm.noise_shares is None:
            answers = {
                client: torch.from_numpy(said)
                for client, said in self._answers(survey, clients).items()
            }
            return (
                MeanAnswer.from_clients(answers, sizes, survey.stddev(width)) if answers else None
            )
        sums, round = AnswerSum(survey, self.algorithm.noise_shares, width, sizes), self.state.round
        if len(clients) < sums.shared.survivors or not (
            replies := self._asked(survey, clients, sums)
        ):
            return None
        sent = {
            reply.client: reply.numbers
            for reply in replies
            if reply.numbers is not None and not sums.fault(reply)
        }
        return open_sum(
            sent,
            sums.shared,
            lambda: sums.answered(sent, self._add, round),
            self._when(survey),
            self.lost,
        )

    def _answers(self, survey: PrivateQuery, clients: Sequence[int]) -> dict[int, np.ndarray]:
        return {
            reply.client: reply.raw["answer"]
            for reply in self._asked(survey, clients)
            if reply.raw is not None
        }

    def _asked(
        self, survey: PrivateQuery, clients: Sequence[int], sums: AnswerSum | None = None
    ) -> list[ClientReply]:
        """Who refuses or fails is lost for this question only. An answer, no longer than a model,
        counts as one.
        """
        if not self._send(len(clients)):
            return []
        order = self._order(clients, 0, self.state.clients, survey)
        if sums:
            order = replace(
                order, tasks=tuple(replace(task, secure_sum=sums.asked) for task in order.tasks)
            )
        if survey is self.algorithm.metric:
            order = replace(order, vector=self.state.model)
        replies = self._probe(order)
        silent = [reply for reply in replies if reply.refused or reply.failed]
        self.lost += [
            f"{self._when(survey)}, client {reply.client}: {reply.refused or reply.failed}"
            for reply in silent
        ]
        return replies

    def _when(self, survey: PrivateQuery) -> str:
        return "after the last round" if survey is self.algorithm.metric else "before round 1"

    def _ask_public(self, steps: int) -> None:
        """The same steps at clients whose data is public, without noise: what they say of it may be
        said exactly.
        """
        if not self.algorithm.steps.asks_public or self.state.samples is None:
            return
        order = self._order(self.federated.public, steps, self.state.clients)
        bare = replace(self.state.samples, noise=None)
        tasks = tuple(
            replace(task, samples=bare, raw=True, slope=False, raw_values=RAW_VALUES)
            for task in order.tasks
        )
        replies = self._probe(replace(order, tasks=tasks))
        self._public = reply_values(replies)

    def _again(
        self, sent: Tensor, updates: Mapping[int, Tensor]
    ) -> dict[int, Mapping[str, np.ndarray]]:
        """Raw values once more, of the way from the new model to the one that each client had come
        to.
        """
        order = self._order(tuple(updates), 0, self.state.clients)
        return reply_values(
            self._probe(
                replace(
                    order, corrections={client: sent + update for client, update in updates.items()}
                )
            )
        )

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
        self._facts = facts(self.algorithm, self.budget, self.federated, state, self._weights)

    def _find_clips(self) -> None:
        """From clients whose data is public, who are never clipped nor counted; or, published, from
        a run without privacy.
        """
        state, public = self.state, self.federated.public
        if state.clients.clip.adapts_to == "public":
            state.clients = of_public_updates(
                state.clients, self._unclipped(public, state.round, state.vector)
            )
        if state.round == 0 and state.samples and state.samples.clip.adapts_to == "public":
            replies = self._probe(asking_norms(self._order(public, 1, state.clients)))
            state.samples, state.clients = of_public_samples(state.samples, state.clients, replies)
            self._facts = facts(self.algorithm, self.budget, self.federated, state, self._weights)
        if state.round == 0 and (clip := state.clients.clip).adapts_to == "raw":
            without = partial(norms_without_privacy, self._trained, rounds_of(clip, self.budget))
            norms = without(state.vector, self._weights, self.algorithm.server)
            state.clients = replace(state.clients, clip=adapt_clip(clip, norms))

    def _trained(self, round: int, vector: Tensor) -> list[ClientReply]:
        return self._unclipped(self._drawn(round), round, vector)

    def _unclipped(self, clients: Sequence[int], round: int, vector: Tensor) -> list[ClientReply]:
        """Updates as they are."""
        order = self._order(clients, self._steps(), Release(self.state.clients.sampling, NoClip()))
        tasks = tuple(replace(task, round=round) for task in order.tasks)
        return self._probe(replace(order, round=round, tasks=tasks, vector=vector))

    def aggregate(self, replies: Sequence[ClientReply]) -> None:
        """3: weigh, sum, noise, and the server's step."""
        state = self.state
        good = self._usable(replies)
        self._paying = [reply.client for reply in replies if not (reply.refused or reply.failed)]
        size = self.federated.layout.size
        if self.algorithm.noise_shares:
            if (stepped := self._opened(good, self.algorithm.noise_shares)) is None:
                return
            update = stepped
        elif self.algorithm.placement is NoisePlacement.ROUND_SUM:
            total = weighted_sum(good, self._weights, size)
            inside = sum(reply.inside for reply in good)
            randomness = debit_round(
                self.federated, state, total, inside, self._left_to_plan, self._randomness
            )
            update = self._noisy(total, len(good), randomness).div_(self._divisor)
            self._adapt_quantile(good, randomness)
        else:
            update = mean(good, self._weights, size)
        sent = state.vector
        rng = self._randomness.generator("noise on the way down", state.round)
        state.vector, state.velocity = self.algorithm.server.step(
            state.vector, state.velocity, update, rng
        )
        keep_variances_positive(state.vector, self.federated.layout)
        state.average = self.algorithm.server.averaged(state.average, state.vector, state.round + 1)
        if self.algorithm.placement is not NoisePlacement.ROUND_SUM:
            self._learn(good, sent)

    def _opened(self, good: Sequence[ClientReply], shared: NoiseShares) -> Tensor | None:
        """The mean update from a sum of whole numbers, if it is opened; else the round was paid
        for, and moves nothing.
        """
        sent, round = (
            {reply.client: reply.numbers for reply in good if reply.numbers is not None},
            self.state.round,
        )
        update = partial(self._sum.update, sent, self._add, round, self.federated.layout)
        if (total := open_sum(sent, shared, update, f"round {round + 1}", self.lost)) is None:
            return None
        found, count = total
        share = float(sum(self._weights[reply.client] for reply in good))
        found.div_(
            self._divisor if self.algorithm.placement is NoisePlacement.ROUND_SUM else share or 1.0
        )
        if count is not None:
            fraction = (
                count / self.state.clients.sampling.expected_size(len(self.federated.declared))
                + 0.5
            )
            self.state.clients = replace(
                self.state.clients, clip=adapt_clip(self.state.clients.clip, fraction)
            )
        return found

    @property
    def _divisor(self) -> float:
        """Fixed before the draw: the expected cohort, times the mean weight as far as it is
        public.
        """
        declared = self.federated.declared
        return self.state.clients.sampling.expected_size(
            len(declared)
        ) * self.algorithm.weights.usual(declared)

    def _noisy(self, total: Tensor, replies: int, randomness: Randomness) -> Tensor:
        state, rng = self.state, randomness.generator("server noise", self.state.round)
        if (noise := state.clients.correlated) is None:
            return noisy_sum(total, replies, state.clients, rng)
        past = state.memory.get(PAST_NOISE, torch.empty(0, len(total)))
        noisy, state.memory[PAST_NOISE] = correlated_sum(total, noise, state.clients, past, rng)
        return noisy

    def _learn(self, good: Sequence[ClientReply], sent: Tensor) -> None:
        """What is taken from the round for the next: released updates, and raw values where the
        step policy asks for them.
        """
        updates = {reply.client: reply.update for reply in good if reply.update is not None}
        if not updates:
            return
        raw, memory = reply_values(good), self.state.memory
        again = partial(self._again, sent, updates if raw else {})
        seen = RoundObservation(
            self._facts, self.state.round, self._taken, sent, updates, raw, self._public, again
        )
        if keeping := self.algorithm.kept:
            self.state.kept = keeping.renewed(self._kept(keeping), seen)
        self.state.memory = self.algorithm.steps.learn(seen, memory)
        if self.algorithm.schedule:
            self.state.memory |= self.algorithm.schedule.learn(seen, self._validate, memory)

    def _usable(self, replies: Sequence[ClientReply]) -> list[ClientReply]:
        """Refusals and failures cost their own reply."""
        for reply in replies:
            if reply.refused and self.algorithm.ledger_per_client:
                self.state.remaining[reply.client] = 0
        layout = self.federated.layout
        faulty = (
            partial(self._sum.fault, layout=layout)
            if self.algorithm.noise_shares
            else partial(fault, size=layout.size)
        )
        good, lost = usable(replies, self.state.round + 1, faulty)
        self.lost += lost
        return good

    def _adapt_quantile(self, replies: Sequence[ClientReply], randomness: Randomness) -> None:
        """Only after the noisy sum is made with the level that the clients used."""
        release = self.state.clients
        if release.clip.adapts_to == "count":
            rng = randomness.generator("count noise", self.state.round)
            expected = release.sampling.expected_size(len(self.federated.declared))
            fraction = noisy_inside_fraction(replies, release, expected, rng)
            self.state.clients = replace(release, clip=adapt_clip(release.clip, fraction))

    def close_round(self, steps: int) -> None:
        """4: count what the round used."""
        state = self.state
        if self.algorithm.ledger_per_client:
            releases = (
                steps + self._extra if self.algorithm.placement is NoisePlacement.EVERY_STEP else 1
            )
            for client in self._cohort:
                state.remaining[client] = max(0, state.remaining[client] - releases)
            for client in self._paying:
                state.paid[client] += releases
        elif self.algorithm.clients.whole_run:
            state.paid[0] = 1
        elif self.algorithm.placement is NoisePlacement.ROUND_SUM:
            state.remaining[0] -= 1
            state.paid[0] += 1
        state.shown = self.clients_shown
        state.round += 1
        state.tau = steps
        state.iterations += steps
