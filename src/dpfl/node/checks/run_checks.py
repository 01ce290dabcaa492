"""Checks of a run's proposal, before a node joins the run.

Every check here yields pairs of a condition and the reason to refuse when it holds. The first
condition that holds refuses the run. Nothing has been debited by then.
"""

from __future__ import annotations

from collections.abc import Iterator

from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.node.checks.proposed_model import ProposedModel
from dpfl.node.load_data import schema_digest
from dpfl.node.policy import ANY, NodePolicy
from dpfl.privacy.accounting.events import ADD_REMOVE, REPLACE, Event, neighbours_of
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.privacy.units import protects_nobody
from dpfl.protocol.proposal import Proposal
from dpfl.refusals import ProtocolError, RefusalReason
from dpfl.secagg.group import check_sizes

BYTES_PER_NUMBER = 4
"""Models and features are float32."""
OTHER_BYTES = 1 << 20
"""Bytes of a message that are not its model's."""

Violations = Iterator[tuple[object, RefusalReason]]
"""Pairs of a condition and the reason to refuse when it holds, in the order of the checks."""


def refuse_first(violations: Violations) -> None:
    """Refuses by the first condition that holds.

    Args:
        violations: The checks. Later ones may rely on earlier ones having passed.

    Raises:
        ProtocolError: A condition holds.
    """
    for violation, reason in violations:
        if violation:
            raise ProtocolError(reason)


def run_violations(policy: NodePolicy, data: Federation, proposal: Proposal) -> Violations:
    """Checks a proposal against the policy and the data.

    Args:
        policy: The node's policy.
        data: The node's data, as a federation of one client.
        proposal: The run as its owner proposes it.

    Yields:
        Conditions that must not hold: a system, variant or model that is not allowed; data of
        another form; too many rounds; another node's place; and what the run would release.
    """
    allow = policy.allow
    yield proposal.variant not in allow.variants, RefusalReason.VARIANT_NOT_ALLOWED
    system_allowed = ANY in allow.systems or proposal.system in allow.systems
    yield not system_allowed, RefusalReason.SYSTEM_NOT_ALLOWED
    yield not _is_allowed_model(policy, proposal), RefusalReason.MODEL_NOT_ALLOWED
    own_task, proposed_task = (
        (task.name, task.outputs, task.classes, task.reads)
        for task in (data.task, proposal.learning)
    )
    other_form = own_task != proposed_task or data.shape != proposal.shape
    yield other_form, RefusalReason.OTHER_SCHEMA
    yield schema_digest(data) != proposal.schema, RefusalReason.OTHER_SCHEMA
    yield (proposal.rounds or 0) > allow.most_rounds, RefusalReason.TOO_MANY_ROUNDS
    place = proposal.client
    other_node = policy.name not in proposal.federation[place : place + 1]
    yield other_node, RefusalReason.WRONG_NODE
    if proposal.events:
        yield from _release_violations(policy, proposal)
    else:
        yield from _noiseless_violations(policy, proposal)


def _release_violations(policy: NodePolicy, proposal: Proposal) -> Violations:
    """Checks a run whose releases the node's ledger pays for."""
    limits, events = policy.limits, [event for event, _ in proposal.events]
    other_kind = proposal.unit != limits.unit or proposal.neighbours != limits.neighbours
    yield other_kind, RefusalReason.OTHER_UNIT
    has_uncounted = any(not _counts_for(event, limits.neighbours) for event in events)
    yield has_uncounted, RefusalReason.OTHER_UNIT
    floating_point = policy.tell.secure and proposal.noise not in ("secure", "shared")
    yield floating_point, RefusalReason.NOT_SECURE
    least = policy.allow.least_noise_multiplier
    too_little = any(_noise_multiplier(event) < least for event in events)
    yield too_little, RefusalReason.TOO_LITTLE_NOISE


def _noiseless_violations(policy: NodePolicy, proposal: Proposal) -> Violations:
    """Checks a run in which the node releases nothing with noise of its own."""
    yield protects_nobody(proposal.unit) and not policy.tell.bare, RefusalReason.WITHOUT_NOISE
    yield not (policy.tell.trusted or policy.tell.bare), RefusalReason.NOT_TRUSTED


def model_violations(policy: NodePolicy, proposed_model: ProposedModel, size: int) -> Violations:
    """Checks what a model takes, in the order in which more of it is built.

    Features that are too large for the memory are refused before they are computed, and a model of
    the catalogue that is too large for a message before its weights exist.

    Args:
        policy: The node's policy.
        proposed_model: The model of the run.
        size: The number of units that the node declared; the memory is judged by it.

    Yields:
        Conditions that must not hold: features that take more memory than the owner allows, or a
        model that does not fit into a message, with all else that the message holds.
    """
    allow = policy.allow
    if proposed_model.has_features:
        rows = policy.rows_in_memory(size, proposed_model.data.rows_per_person)
        feature_bytes = BYTES_PER_NUMBER * rows * proposed_model.numbers_per_row
        yield feature_bytes > allow.most_memory, RefusalReason.TOO_MUCH_MEMORY
    if proposed_model.from_catalogue:
        parameter_bytes = BYTES_PER_NUMBER * proposed_model.count_parameters()
        yield parameter_bytes > allow.most_bytes, RefusalReason.TOO_LARGE
    message_bytes = BYTES_PER_NUMBER * proposed_model.vector_size() + OTHER_BYTES
    yield message_bytes > allow.most_bytes, RefusalReason.TOO_LARGE


def secure_sum_violations(policy: NodePolicy, public_key: str, proposal: Proposal) -> Violations:
    """Checks with whom the node would sum.

    Args:
        policy: The node's policy, which lists the members by name and key.
        public_key: The node's own key.
        proposal: The run as its owner proposes it.

    Yields:
        Conditions that must not hold: a member or a key that the owner did not list, or fewer
        survivors or colluders than the owner asks for.
    """
    terms, secure, federation = proposal.sums, policy.secure, proposal.federation
    yield (terms is not None) != (proposal.noise == "shared"), RefusalReason.BAD_WORDS
    if terms is None:
        return
    yield secure is None, RefusalReason.NO_SUMS
    assert secure is not None
    keys = {**secure.members, policy.name: public_key}
    has_repetition = len(set(federation)) < len(federation)
    yield has_repetition or not proposal.events, RefusalReason.BAD_WORDS
    expected_keys = tuple(keys.get(name) for name in federation)
    yield proposal.keys != expected_keys, RefusalReason.UNKNOWN_MEMBER
    yield terms.survivors < secure.least_survivors, RefusalReason.TOO_FEW_SURVIVORS
    yield terms.colluders < secure.least_colluders, RefusalReason.TOO_FEW_COLLUDERS
    yield not _is_one_list(len(federation), terms), RefusalReason.TOO_FEW_SURVIVORS


def _is_allowed_model(policy: NodePolicy, proposal: Proposal) -> bool:
    """Says whether the policy allows the model: one of the catalogue, which checks its options
    itself, or one of the owner's with exactly the owner's options.
    """
    own_options = policy.allow.own_models.get(proposal.model)
    if own_options is not None:
        return dict(proposal.options) == own_options
    return proposal.model in policy.allow.models


def _is_one_list(members: int, terms: NoiseShares) -> bool:
    """Says whether the thresholds keep the server from showing two different sets of survivors."""
    try:
        check_sizes(members, terms.survivors, terms.colluders)
        return True
    except DpflError:
        return False


def _counts_for(event: Event, neighbours: str) -> bool:
    """Says whether an event has a proof for these neighbours. A draw of a fixed size has one only
    where a unit is replaced.
    """
    return neighbours_of([event]) == ADD_REMOVE or neighbours == REPLACE


def _noise_multiplier(event: Event) -> float:
    """Finds the noise multiplier of an event. The event of a fixed-size draw halves it, because it
    is stated for twice the sensitivity.
    """
    if neighbours_of([event]) == REPLACE:
        return 2 * _noise_multiplier(event.event)
    inner = getattr(event, "event", event)
    return float(getattr(inner, "noise_multiplier", 0.0))
