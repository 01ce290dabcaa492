"""Checks of a task, before a node debits anything for it.

A task is data that came over a network. It is compared with the policy, with the proposal that the
node joined, and with the model's layout. What a server says about privacy is never believed: the
event of a release is computed from its parts, here. As in `run_checks.py`, every check yields pairs
of a condition and the reason to refuse when it holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from dpfl.client.noise_placement import NoisePlacement
from dpfl.client.task import ClientTask
from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.models import Layout
from dpfl.node.checks.run_checks import Violations
from dpfl.node.policy import NodePolicy
from dpfl.privacy import Release
from dpfl.privacy.accounting.events import ADD_REMOVE
from dpfl.privacy.queries.columns import MIN_VARIANCE
from dpfl.privacy.units import PERSON_UNIT, SAMPLE_UNIT, protects_person
from dpfl.protocol.proposal import Proposal
from dpfl.refusals import RefusalReason
from dpfl.tasks.noisy import numbers_and_cells


def task_violations(
    policy: NodePolicy, task: ClientTask, proposal: Proposal, layout: Layout
) -> Violations:
    """Checks a task as a whole.

    Args:
        policy: The node's policy.
        task: The task as it came.
        proposal: The run that the node joined.
        layout: The layout of the run's model.

    Yields:
        Conditions that must not hold: another node, too many rounds or steps, values without noise,
        a clip for another model, noise for another unit, and a secure sum where none was proposed.
    """
    allow = policy.allow
    yield task.client != proposal.client, RefusalReason.WRONG_NODE
    rounds = min(allow.most_rounds, proposal.rounds or allow.most_rounds)
    # A metric may be of the model after the last round.
    yield task.round >= rounds + task.asks_metric, RefusalReason.TOO_MANY_ROUNDS
    yield task.steps > allow.most_steps, RefusalReason.TOO_MANY_STEPS
    disclosure = policy.disclosure_rules.reason(task)
    yield disclosure, disclosure or RefusalReason.RAW_VALUES
    yield from _layout_violations(task, layout)
    unit = _protected_unit(policy, task)
    yield unit not in ("", policy.limits.unit), RefusalReason.OTHER_UNIT
    yield from _secure_sum_violations(task, proposal)


def _layout_violations(task: ClientTask, layout: Layout) -> Violations:
    """Checks that clips by layer are those of this model's layers."""
    ends = (*layout.offsets[1:], layout.size)
    trainable_ends = [end for end in ends if end <= layout.trainable]
    yield task.clients.for_model(ends) != task.clients, RefusalReason.BAD_WORDS
    if task.samples is not None:
        other_layers = task.samples.for_model(trainable_ends) != task.samples
        yield other_layers, RefusalReason.BAD_WORDS


def _secure_sum_violations(task: ClientTask, proposal: Proposal) -> Violations:
    """Checks that a task is for a secure sum exactly where the proposal says so, and on its
    terms.
    """
    terms = task.secure_sum
    proposed_shares = proposal.sums if terms or not task.query else None
    yield task.noise_shares != proposed_shares, RefusalReason.UNMASKED
    if terms is None:
        return
    yield terms.clients != len(proposal.federation), RefusalReason.BAD_WORDS
    # These raise DpflError where no integer is wide enough for the sum.
    if task.summed_release:
        task.summed_release.integer_sum(terms.bound, terms.clients)
    if task.query and task.query.summable and task.noise_shares:
        task.query.integer_sum(task.noise_shares, 1, terms.bound, terms.clients)


def _protected_unit(policy: NodePolicy, task: ClientTask) -> str:
    """Finds the unit that the noise of this node's own release protects; empty where there is none.
    A "sample" is a person where the node trains by person.
    """
    magnitude = PERSON_UNIT if protects_person(policy.limits.unit) else SAMPLE_UNIT
    if task.query:
        return "" if task.query.trusted else magnitude
    return task.placed_release.unit(magnitude) if task.own_release else ""


def batch_violations(
    policy: NodePolicy, data: Federation, task: ClientTask, size: int
) -> Violations:
    """Checks batches of a fixed size.

    Such a batch cannot be drawn from fewer units, which would tell how many there are, and its cost
    depends on how many there are. So the declared size must be the exact one.

    Args:
        policy: The node's policy.
        data: The node's data.
        task: The task.
        size: The number of units that the node declared when it joined.

    Yields:
        Conditions that must not hold.
    """
    if task.samples is None or task.query is not None:
        return
    sampling = task.samples.sampling
    if not sampling.constant_size:
        return
    # The policy may have been another one when the run was joined.
    exact = policy.tell.size_rule.exact and size == data.count_units(policy.limits.unit)[0]
    yield not exact, RefusalReason.SIZE_NOT_EXACT
    yield sampling.min_population > size, RefusalReason.RATE_TOO_HIGH


def release_violations(
    policy: NodePolicy, task: ClientTask, release: Release, size: int
) -> Violations:
    """Checks the release that the node's ledger pays for.

    Args:
        policy: The node's policy.
        task: The task that the release is part of.
        release: The release.
        size: The number of units that the node declared.

    Yields:
        Conditions that must not hold: other neighbours, a sampling that nothing covers, too little
        noise, noise that is not secure or that float32 would lose, a large clip, a high rate.
    """
    allow, is_update_sum = policy.allow, task.placement is NoisePlacement.ROUND_SUM
    yield release.neighbours != policy.limits.neighbours, RefusalReason.OTHER_UNIT
    # In a secure sum a client draws by itself, and unseen, whether its update is in it.
    sampling = release.sampling
    is_allowed = sampling.independent if is_update_sum else sampling.draws_samples
    yield not is_allowed or release.whole_run, RefusalReason.UNCOVERED
    has_secure_noise = release.secure or release.noise_shares
    yield policy.tell.secure and not has_secure_noise, RefusalReason.NOT_SECURE
    yield release.noise_multiplier < allow.least_noise_multiplier, RefusalReason.TOO_LITTLE_NOISE
    yield release.clip.clip_norm > allow.largest_clip, RefusalReason.CLIP_TOO_LARGE
    if not is_update_sum:
        too_high = _sampling_rate(release, size) > allow.largest_sampling_rate
        yield too_high, RefusalReason.RATE_TOO_HIGH
        yield _is_absorbed(release, size), RefusalReason.TOO_LITTLE_NOISE


def _sampling_rate(release: Release, size: int) -> float:
    """Finds the rate of a step. A release of an update draws no samples."""
    return 0.0 if release.is_update else release.sampling.expected_size(size) / size


def _is_absorbed(release: Release, size: int) -> bool:
    """Says whether float32 would lose the noise beside the sum."""
    units = 1 if release.is_update else release.sampling.expected_size(size)
    try:
        release.check_not_absorbed(units, release.clip.clip_norm)
        return False
    except DpflError:
        return True


def query_violations(policy: NodePolicy, data: Federation, task: ClientTask) -> Violations:
    """Checks a task that asks for statistics of the data and not for training.

    Args:
        policy: The node's policy.
        data: The node's data.
        task: A task with a query.

    Yields:
        Conditions that must not hold: columns or labels that the data does not have, a bound that
        does not cover the node's task, or too little noise.
    """
    query = task.query
    assert query is not None
    features = math.prod(data.train.x.shape[1:])
    yield not query.matches_data(features, data.classes), RefusalReason.OTHER_SCHEMA
    if query.asks_metric:
        yield query.held_out_share, RefusalReason.OTHER_SCHEMA  # a node trains on all that it has
        is_uncovered = not query.matches_metric(*numbers_and_cells(data.task))
        yield is_uncovered, RefusalReason.UNCOVERED
    if query.trusted or query.noise_multiplier is None:
        return
    yield policy.limits.neighbours != ADD_REMOVE, RefusalReason.OTHER_UNIT
    yield policy.tell.secure and not query.secure, RefusalReason.NOT_SECURE
    too_little = query.noise_multiplier < policy.allow.least_noise_multiplier
    yield too_little, RefusalReason.TOO_LITTLE_NOISE


def vector_violations(
    policy: NodePolicy, task: ClientTask, vectors: Mapping[str, np.ndarray], layout: Layout
) -> Violations:
    """Checks the numbers of the model that a task starts from.

    Huge weights make the last bit of a float32 sum count. Arithmetic that gives every unit the same
    bits makes that harmless (docs/privacy.md, "Float arithmetic"). This bound is a second line, for
    whatever that arithmetic overlooks.

    Args:
        policy: The node's policy.
        task: The task.
        vectors: The model, and what is added to its gradients, if anything.
        layout: The model's layout.

    Yields:
        Conditions that must not hold.
    """
    largest = policy.allow.largest_weight
    magnitudes = {name: _magnitude(array) for name, array in vectors.items()}
    too_large = any(not magnitude <= largest for magnitude in magnitudes.values())
    yield too_large, RefusalReason.WEIGHTS_TOO_LARGE
    if "correction" in magnitudes and not task.local.objective.needs_last:
        reach = _correction_reach(task, magnitudes["correction"])
        yield not reach <= largest, RefusalReason.WEIGHTS_TOO_LARGE
    if layout.paid_scales:  # the numbers of a row are divided by the root of the second half
        paid_part = vectors["model"][layout.paid_scales]
        variances = paid_part[(layout.paid_scales.stop - layout.paid_scales.start) // 2 :]
        yield bool((variances < np.float32(MIN_VARIANCE)).any()), RefusalReason.WEIGHTS_TOO_LARGE


def _correction_reach(task: ClientTask, magnitude: float) -> float:
    """Bounds how far the correction can move a weight: every step goes along it by the rate, and
    momentum repeats each step 1 / (1 - beta) times at most.
    """
    optimiser = task.local.optimiser
    repeats = min(max(task.steps, 1), 1 / (1 - optimiser.momentum))
    return task.steps * optimiser.rate * repeats * magnitude


def _magnitude(array: np.ndarray) -> float:
    """Computes the largest absolute value; NaN where there is one."""
    return float(max(array.max(), -array.min())) if array.size else 0.0
