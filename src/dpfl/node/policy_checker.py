"""What a node refuses before anything is debited: runs and tasks against its policy, its data and
its ledger's kind.

Every check returns the word it refuses by. What a server says is looked at and never believed: a
release costs what its parts cost, here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from dpfl.client.optimisers import Momentum
from dpfl.client.task import ClientTask
from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.lazy_import import dp
from dpfl.models import Layout
from dpfl.node.load_data import schema_digest
from dpfl.node.policy import ANY, NodePolicy
from dpfl.privacy import Ledger, Release
from dpfl.privacy.accounting.calibration import MAX_RELEASES, largest_count
from dpfl.privacy.accounting.events import (
    ADD_REMOVE,
    REPLACE,
    Event,
    EventCounts,
    add_all,
    neighbours_of,
)
from dpfl.privacy.ledger.limit import Limit, SubLimit
from dpfl.privacy.mechanisms.noise_shares import NoiseShares
from dpfl.privacy.mechanisms.sampling import All, FixedSize, Poisson, PoissonSize
from dpfl.privacy.queries.answers import Mean, answers_of
from dpfl.privacy.queries.columns import MIN_VARIANCE, ColumnQuery
from dpfl.privacy.queries.histogram import LabelQuery
from dpfl.privacy.queries.metric import MetricQuery
from dpfl.protocol.proposal import Proposal
from dpfl.refusals import ProtocolError, RefusalReason
from dpfl.secagg.group import SumGroup, check_sizes
from dpfl.tasks.noisy import numbers_and_cells

DRAWN = (Poisson, All, FixedSize)
"""How samples of a step may be drawn: what else there is draws clients."""
COINS = (Poisson, PoissonSize, All)
"""How a client may draw whether its update is in a secure sum: by itself, and unseen."""

Broken = Iterator[tuple[object, RefusalReason]]
"""What is wrong, where it is, and the word for it; asked in turn."""


def first(broken: Broken) -> None:
    for wrong, reason in broken:
        if wrong:
            raise ProtocolError(reason)


@dataclass(frozen=True)
class PolicyChecker:
    charter: NodePolicy
    held: Federation
    key: str = ""
    """This node's own public one."""

    def check_run(self, proposal: Proposal) -> None:
        first(self._run(proposal))
        first(self._together(proposal))

    def check_task(self, task: ClientTask, proposal: Proposal, layout: Layout, size: int) -> None:
        try:
            first(self._task(task, proposal, layout))
            first(self._batches(task, size))
            if task.own_release:
                first(self._release(task, task.own_release, size))
            if task.query:
                first(self._survey(task))
        except DpflError:  # parts that do not go together
            raise ProtocolError(RefusalReason.BAD_WORDS) from None

    def check_vectors(
        self, task: ClientTask, vectors: Mapping[str, np.ndarray], layout: Layout
    ) -> None:
        """Refuses a model that no honest server sends.

        Huge weights make the last bit of a float32 sum count. Arithmetic that gives every unit the
        same bits makes that harmless; this bound is a second line, for whatever that arithmetic
        overlooks.

        Args:
            task: What is asked for with these vectors.
            vectors: The model, and what is added to its gradients, if anything.
            layout: Of the model.

        Raises:
            Bad: By `Reason.WEIGHTS_TOO_LARGE`.
        """
        first(self._vectors(task, vectors, layout))

    def _vectors(
        self, task: ClientTask, vectors: Mapping[str, np.ndarray], layout: Layout
    ) -> Broken:
        largest_weight = self.charter.allow.largest_weight
        sizes = {name: _largest(array) for name, array in vectors.items()}
        yield (
            any(not size <= largest_weight for size in sizes.values()),
            RefusalReason.WEIGHTS_TOO_LARGE,
        )
        if (
            "correction" in sizes and not task.local.objective.needs_last
        ):  # every step goes along it by the rate
            optimiser = task.local.optimiser
            again = (
                min(task.steps, 1 / (1 - optimiser.beta))
                if isinstance(optimiser, Momentum)
                else 1.0
            )
            reach = task.steps * optimiser.rate * again * sizes["correction"]
            yield not reach <= largest_weight, RefusalReason.WEIGHTS_TOO_LARGE
        if layout.paid:  # numbers of a row are divided by the root of the second half
            variances = vectors["model"][layout.paid][(layout.paid.stop - layout.paid.start) // 2 :]
            yield (
                bool((variances < np.float32(MIN_VARIANCE)).any()),
                RefusalReason.WEIGHTS_TOO_LARGE,
            )

    def _run(self, proposal: Proposal) -> Broken:
        allow, limits, held = self.charter.allow, self.charter.limits, self.held
        yield proposal.variant not in allow.variants, RefusalReason.VARIANT_NOT_ALLOWED
        yield (
            ANY not in allow.systems and proposal.system not in allow.systems,
            RefusalReason.SYSTEM_NOT_ALLOWED,
        )
        yield not self._knows(proposal), RefusalReason.MODEL_NOT_ALLOWED
        mine, theirs = (
            (task.name, task.outputs, task.classes, task.reads)
            for task in (held.task, proposal.learning)
        )
        yield mine != theirs or held.shape != proposal.shape, RefusalReason.OTHER_SCHEMA
        yield schema_digest(held) != proposal.schema, RefusalReason.OTHER_SCHEMA
        yield (proposal.rounds or 0) > allow.most_rounds, RefusalReason.TOO_MANY_ROUNDS
        place = proposal.client
        yield (
            self.charter.name not in proposal.federation[place : place + 1],
            RefusalReason.WRONG_NODE,
        )
        if proposal.events:
            yield (
                proposal.unit != limits.unit or proposal.neighbours != limits.neighbours,
                RefusalReason.OTHER_UNIT,
            )
            yield (
                any(not _fits(event, limits.neighbours) for event, _ in proposal.events),
                RefusalReason.OTHER_UNIT,
            )
            yield (
                self.charter.tell.secure and proposal.noise not in ("secure", "shared"),
                RefusalReason.NOT_SECURE,
            )
            yield (
                any(_noise(event) < allow.least_noise_multiplier for event, _ in proposal.events),
                RefusalReason.TOO_LITTLE_NOISE,
            )
        else:
            yield (
                proposal.unit == "none" and not self.charter.tell.bare,
                RefusalReason.WITHOUT_NOISE,
            )
            yield (
                not (self.charter.tell.trusted or self.charter.tell.bare),
                RefusalReason.NOT_TRUSTED,
            )

    def _together(self, proposal: Proposal) -> Broken:
        """With whom it would sum: those, by name and key, whom the owner listed, and as many of
        them as the owner asks for.
        """
        sums, secure, federation = proposal.sums, self.charter.secure, proposal.federation
        yield (sums is not None) != (proposal.noise == "shared"), RefusalReason.BAD_WORDS
        if sums is None:
            return
        yield secure is None, RefusalReason.NO_SUMS
        assert secure is not None
        known = {**secure.members, self.charter.name: self.key}
        yield len(set(federation)) < len(federation) or not proposal.events, RefusalReason.BAD_WORDS
        yield (
            proposal.keys != tuple(known.get(name) for name in federation),
            RefusalReason.UNKNOWN_MEMBER,
        )
        yield sums.survivors < secure.least_survivors, RefusalReason.TOO_FEW_SURVIVORS
        yield sums.colluders < secure.least_colluders, RefusalReason.TOO_FEW_COLLUDERS
        yield not _one_list(len(federation), sums), RefusalReason.TOO_FEW_SURVIVORS

    def group(self, run: str, owner: str, proposal: Proposal) -> SumGroup:
        """Who sums together in a run that was checked."""
        if proposal.sums is None:
            raise ProtocolError(RefusalReason.UNMASKED)
        identities = dict(zip(proposal.federation, proposal.keys, strict=True))
        return SumGroup(
            proposal.together(run, owner),
            identities,
            proposal.sums.survivors,
            proposal.sums.colluders,
        )

    def _knows(self, proposal: Proposal) -> bool:
        """A model of the catalogue, with options that it checks; or one of the owner's, with the
        owner's options.
        """
        own = self.charter.allow.own_models.get(proposal.model)
        return (
            dict(proposal.options) == own
            if own is not None
            else proposal.model in self.charter.allow.models
        )

    def _task(self, task: ClientTask, proposal: Proposal, layout: Layout) -> Broken:
        allow = self.charter.allow
        yield task.client != proposal.client, RefusalReason.WRONG_NODE
        rounds = min(allow.most_rounds, proposal.rounds or allow.most_rounds)
        yield (
            task.round >= rounds + task.asks_metric,
            RefusalReason.TOO_MANY_ROUNDS,
        )  # a metric is of the model after the last
        yield task.steps > allow.most_steps, RefusalReason.TOO_MANY_STEPS
        yield (task.steps < 1) != (task.query is not None), RefusalReason.BAD_WORDS
        yield (reason := self.charter.policy.reason(task)), reason or RefusalReason.RAW_VALUES
        ends = (*layout.offsets[1:], layout.size)
        inside = [end for end in ends if end <= layout.trainable]
        yield task.clients.for_model(ends) != task.clients, RefusalReason.BAD_WORDS
        yield (
            task.samples is not None and task.samples.for_model(inside) != task.samples,
            RefusalReason.BAD_WORDS,
        )
        yield self._protected(task) not in ("", self.charter.limits.unit), RefusalReason.OTHER_UNIT
        yield (
            task.noise_shares != (proposal.sums if task.secure_sum or not task.query else None),
            RefusalReason.UNMASKED,
        )
        yield (
            task.secure_sum and task.secure_sum.clients != len(proposal.federation),
            RefusalReason.BAD_WORDS,
        )
        if task.summed_release and task.secure_sum:
            task.summed_release.integer_sum(
                task.secure_sum.bound, task.secure_sum.clients
            )  # refused where no number can hold it
        if isinstance(task.query, Mean) and task.noise_shares and task.secure_sum:
            answers_of(
                task.query, task.noise_shares, 1, task.secure_sum.bound, task.secure_sum.clients
            )  # so too, with the least noise

    def _protected(self, task: ClientTask) -> str:
        """Whom the noise of this node's own release is for; nobody, where there is none. Samples
        are persons where this node trains by person."""
        one = "person" if self.charter.limits.unit == "person" else "sample"
        if task.query:
            return "" if task.query.trusted else one
        return task.placed.unit(one) if task.own_release else ""

    def _batches(self, task: ClientTask, size: int) -> Broken:
        """A batch that cannot be drawn would say how many units there are, and a fixed size costs
        by how many there are.
        """
        fixed = (
            task.samples is not None
            and task.query is None
            and isinstance(task.samples.sampling, FixedSize)
        )
        exact = (
            self.charter.tell.size == "exact"
            and size == self.held.counted(self.charter.limits.unit)[0]
        )
        yield (
            fixed and not exact,
            RefusalReason.SIZE_NOT_EXACT,
        )  # the policy may have been another when the run was joined
        yield (
            fixed and task.samples and task.samples.sampling.min_population > size,
            RefusalReason.RATE_TOO_HIGH,
        )

    def _release(self, task: ClientTask, release: Release, size: int) -> Broken:
        allow, tell, of_clients = self.charter.allow, self.charter.tell, release is task.clients
        yield release.neighbours != self.charter.limits.neighbours, RefusalReason.OTHER_UNIT
        yield (
            type(release.sampling) not in (COINS if of_clients else DRAWN) or release.whole_run,
            RefusalReason.UNCOVERED,
        )
        yield tell.secure and not (release.secure or release.noise_shares), RefusalReason.NOT_SECURE
        yield (
            release.noise_multiplier < allow.least_noise_multiplier,
            RefusalReason.TOO_LITTLE_NOISE,
        )
        yield release.clip.clip_norm > allow.largest_clip, RefusalReason.CLIP_TOO_LARGE
        if not of_clients:
            yield _rate(release, size) > allow.largest_sampling_rate, RefusalReason.RATE_TOO_HIGH
            yield _absorbed(release, size), RefusalReason.TOO_LITTLE_NOISE

    def _survey(self, task: ClientTask) -> Broken:
        survey = task.query
        assert survey is not None
        yield isinstance(survey, LabelQuery) and not self.held.classes, RefusalReason.OTHER_SCHEMA
        if isinstance(survey, ColumnQuery):
            width = self.held.train.x[0].numel()
            places = (*survey.places, *(place for place, _ in survey.binned))
            yield (
                not places or max(places) >= width or survey.numbers > width,
                RefusalReason.OTHER_SCHEMA,
            )
        if isinstance(survey, MetricQuery):
            yield survey.held_out, RefusalReason.OTHER_SCHEMA  # a node trains on all that it has
            yield (
                (survey.numbers, survey.cells) != numbers_and_cells(self.held.task),
                RefusalReason.UNCOVERED,
            )
        if survey.trusted or survey.noise_multiplier is None:
            return
        yield self.charter.limits.neighbours != ADD_REMOVE, RefusalReason.OTHER_UNIT
        yield self.charter.tell.secure and not survey.secure, RefusalReason.NOT_SECURE
        yield (
            survey.noise_multiplier < self.charter.allow.least_noise_multiplier,
            RefusalReason.TOO_LITTLE_NOISE,
        )


def _largest(array: np.ndarray) -> float:
    """The largest magnitude; not a number where one is not."""
    return float(max(array.max(), -array.min())) if array.size else 0.0


def _one_list(members: int, sums: NoiseShares) -> bool:
    """Whether no two sets of survivors can be shown."""
    try:
        check_sizes(members, sums.survivors, sums.colluders)
        return True
    except DpflError:
        return False


def _fits(event: Event, neighbours: str) -> bool:
    """Fixed-size draws are proven for another's place only; all others for either, by the noise
    that they have.
    """
    return neighbours_of([event]) == ADD_REMOVE or neighbours == REPLACE


def _noise(event: Event) -> float:
    """The multiplier of an event; that of a fixed-size draw is counted for twice the
    sensitivity.
    """
    if isinstance(event, dp.SampledWithoutReplacementDpEvent):
        return 2 * _noise(event.event)
    inner = getattr(event, "event", event)
    return float(getattr(inner, "noise_multiplier", 0.0))


def _rate(release: Release, size: int) -> float:
    """Of a step; an upload draws nothing."""
    return 0.0 if release.of_models else release.sampling.expected_size(size) / size


def _absorbed(release: Release, size: int) -> bool:
    """Whether float32 would lose the noise beside the sum."""
    try:
        release.check_not_absorbed(
            1 if release.of_models else release.sampling.expected_size(size), release.clip.clip_norm
        )
        return False
    except DpflError:
        return True


def room(
    ledger: Ledger, run: str, proposal: Proposal, limit: Limit, shares: tuple[SubLimit, ...]
) -> int:
    """How many of the run's releases, from its first on, all limits leave room for beside other
    runs.
    """
    parts: list[tuple[Limit, EventCounts]] = [(limit, ledger.spending(besides=run))]
    parts += [
        (share.limit, {} if share.run else ledger.spending_within(share, besides=run))
        for share in shares
    ]
    kinds, left = {event for event, _ in proposal.events}, min(proposal.most, MAX_RELEASES)
    if len(kinds) > 1:
        return largest_count(
            lambda releases: all(
                bound.covers(add_all(others, proposal.spending(releases)))
                for bound, others in parts
            ),
            left,
        )
    for event in kinds:
        for bound, others in sorted(
            parts, key=lambda part: part[0].epsilon
        ):  # the others have one question to answer then
            left = bound.remaining(others, event, left) if left else 0
    return left


def allowed(
    ledger: Ledger, event: Event, count: int, limit: Limit, shares: tuple[SubLimit, ...], left: int
) -> bool:
    """Whether so many can be debited now; the ledger asks the same again as it writes."""
    parts = [
        (limit, ledger.spending()),
        *((share.limit, ledger.spending_within(share)) for share in shares),
    ]
    return all(bound.allows(spent, event, count, left) for bound, spent in parts)
