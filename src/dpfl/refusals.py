"""The reasons for which a node refuses a message: a fixed list, with one fixed sentence for each.
None of them says anything about data.
"""

from __future__ import annotations

from enum import StrEnum


class RefusalReason(StrEnum):
    """A reason as messages write it. `SENTENCES` has the sentence that people read."""

    NOT_A_LETTER = "not-a-letter"
    OTHER_FORMAT = "other-format"
    TOO_LARGE = "too-large"
    BAD_SIGNATURE = "bad-signature"
    BAD_HEAD = "bad-head"
    BAD_ARRAYS = "bad-arrays"
    NOT_FINITE = "not-finite"
    UNKNOWN_MESSAGE = "unknown-message"
    UNKNOWN_PART = "unknown-part"
    BAD_WORDS = "bad-words"
    WRONG_NODE = "wrong-node"
    WRONG_RUN = "wrong-run"
    NOT_JOINED = "not-joined"
    ORDER_CHANGED = "order-changed"
    ORDER_PAST = "order-past"
    TOO_MANY_ATTEMPTS = "too-many-attempts"
    OVER_BUDGET = "over-budget"
    NOT_PLANNED = "not-planned"
    TOO_LITTLE_NOISE = "too-little-noise"
    CLIP_TOO_LARGE = "clip-too-large"
    WEIGHTS_TOO_LARGE = "weights-too-large"
    TOO_MUCH_MEMORY = "too-much-memory"
    TOO_MANY_STEPS = "too-many-steps"
    TOO_MANY_ROUNDS = "too-many-rounds"
    RATE_TOO_HIGH = "rate-too-high"
    VARIANT_NOT_ALLOWED = "variant-not-allowed"
    SYSTEM_NOT_ALLOWED = "system-not-allowed"
    MODEL_NOT_ALLOWED = "model-not-allowed"
    RAW_VALUES = "raw-values"
    WITHOUT_NOISE = "without-noise"
    NOT_TRUSTED = "not-trusted"
    UNCOVERED = "uncovered"
    NOT_SECURE = "not-secure"
    OTHER_SCHEMA = "other-schema"
    OTHER_UNIT = "other-unit"
    SIZE_NOT_EXACT = "size-not-exact"
    NO_SUMS = "no-secure-sums"
    UNKNOWN_MEMBER = "unknown-member"
    TOO_FEW_COLLUDERS = "too-few-colluders"
    TOO_FEW_SURVIVORS = "too-few-survivors"
    UNMASKED = "unmasked"
    BAD_KEYS = "bad-keys"
    NO_KEYS = "no-keys"
    SET_UP_PAST = "set-up-past"
    SUM_OVER = "sum-over"
    BAD_SURVIVORS = "bad-survivors"
    OTHER_SURVIVORS = "other-survivors"
    TOO_FEW_VOTES = "too-few-votes"
    JOIN_AGAIN = "join-again"
    ROLLED_BACK = "rolled-back"
    LEDGER = "ledger"
    NO_ROOM = "no-room"
    DIVERGED = "diverged"
    FAILED = "failed"


SENTENCES: dict[RefusalReason, str] = {
    RefusalReason.NOT_A_LETTER: "These bytes are not a message.",
    RefusalReason.OTHER_FORMAT: (
        "The message has the format of another version of dpfl. Install the same version at the "
        "server and at its nodes."
    ),
    RefusalReason.TOO_LARGE: (
        "The message, or what it asks for, is larger than the node's policy allows."
    ),
    RefusalReason.BAD_SIGNATURE: "The message is not signed by a key that the node's policy names.",
    RefusalReason.BAD_HEAD: "The header of the message is malformed.",
    RefusalReason.BAD_ARRAYS: "The arrays of the message do not match its header.",
    RefusalReason.NOT_FINITE: "An array of the message contains numbers that are not finite.",
    RefusalReason.UNKNOWN_MESSAGE: "The node knows no message of this kind.",
    RefusalReason.UNKNOWN_PART: "The message names a part that the node does not know.",
    RefusalReason.BAD_WORDS: (
        "A field of the message is missing, unknown, out of range or of the wrong type."
    ),
    RefusalReason.WRONG_NODE: "The message is for another node.",
    RefusalReason.WRONG_RUN: (
        "A run with this name was proposed before with other content, or by another owner."
    ),
    RefusalReason.NOT_JOINED: "The node has not joined this run.",
    RefusalReason.ORDER_CHANGED: "A task with this name came before with other content.",
    RefusalReason.ORDER_PAST: "The task belongs to a round that is over.",
    RefusalReason.TOO_MANY_ATTEMPTS: "The node has begun this task too often without finishing it.",
    RefusalReason.OVER_BUDGET: "The node's budget has no room for this task.",
    RefusalReason.NOT_PLANNED: (
        "The proposal of the run does not contain this release, or not as many of them."
    ),
    RefusalReason.TOO_LITTLE_NOISE: (
        "The noise multiplier is below the minimum of the node's policy."
    ),
    RefusalReason.CLIP_TOO_LARGE: "The clip norm is above the maximum of the node's policy.",
    RefusalReason.WEIGHTS_TOO_LARGE: (
        "The model has a weight above the maximum of the node's policy, or a scale below its "
        "minimum."
    ),
    RefusalReason.TOO_MUCH_MEMORY: (
        "The features of the model would take more memory than the node's policy allows."
    ),
    RefusalReason.TOO_MANY_STEPS: "The task has more steps than the node's policy allows.",
    RefusalReason.TOO_MANY_ROUNDS: (
        "The run has more rounds than the node's policy or the proposal allows."
    ),
    RefusalReason.RATE_TOO_HIGH: "The sampling rate is above the maximum of the node's policy.",
    RefusalReason.VARIANT_NOT_ALLOWED: "The node's policy does not allow this variant.",
    RefusalReason.SYSTEM_NOT_ALLOWED: "The node's policy does not allow this system.",
    RefusalReason.MODEL_NOT_ALLOWED: (
        "The node's policy does not allow this model, or the model does not fit the node's data."
    ),
    RefusalReason.RAW_VALUES: "The node's policy does not allow raw values to leave.",
    RefusalReason.WITHOUT_NOISE: (
        "The node's policy does not allow anything to leave without noise."
    ),
    RefusalReason.NOT_TRUSTED: "The node's policy does not trust the server to add the noise.",
    RefusalReason.UNCOVERED: "The noise does not cover the change that one unit can cause.",
    RefusalReason.NOT_SECURE: "The node's policy requires secure noise.",
    RefusalReason.OTHER_SCHEMA: "The node's samples do not have the form that the run expects.",
    RefusalReason.OTHER_UNIT: "The node's ledger counts another unit, or other neighbours.",
    RefusalReason.SIZE_NOT_EXACT: (
        "Batches of a fixed size need the exact number of units, which the node's policy does "
        "not declare."
    ),
    RefusalReason.NO_SUMS: "The node's policy names no members for secure sums.",
    RefusalReason.UNKNOWN_MEMBER: (
        "The run gives a member of its secure sums a key that the node's policy does not have "
        "for that member."
    ),
    RefusalReason.TOO_FEW_COLLUDERS: (
        "The run assumes fewer colluders than the node's policy requires."
    ),
    RefusalReason.TOO_FEW_SURVIVORS: (
        "The run would open a sum over fewer clients than the node's policy requires."
    ),
    RefusalReason.UNMASKED: "The proposal and the task disagree on whether the sums are secure.",
    RefusalReason.BAD_KEYS: (
        "The keys are not those of the run's members, each signed by its member for this run."
    ),
    RefusalReason.NO_KEYS: (
        "The node has no keys for this sum, because it was restarted or has agreed on new keys "
        "since."
    ),
    RefusalReason.SET_UP_PAST: (
        "Newer keys were agreed for this run, or the server's clock was set back."
    ),
    RefusalReason.SUM_OVER: (
        "This sum is not open at the node: it belongs to another round or is finished."
    ),
    RefusalReason.BAD_SURVIVORS: (
        "The list of survivors has a stranger or a duplicate, or leaves this node out."
    ),
    RefusalReason.OTHER_SURVIVORS: (
        "The node has received another list of survivors for this sum before."
    ),
    RefusalReason.TOO_FEW_VOTES: "Too few members have signed this list of survivors.",
    RefusalReason.JOIN_AGAIN: (
        "The node was restarted after it joined this run. The server must ask it to join again, "
        "with the ledger heads that the node signed."
    ),
    RefusalReason.ROLLED_BACK: (
        "The node's ledger lacks releases that the node has signed. Its owner must reconcile "
        "the ledger first."
    ),
    RefusalReason.LEDGER: "The node cannot use its ledger now.",
    RefusalReason.NO_ROOM: "The node's disk has no room for a reply.",
    RefusalReason.DIVERGED: "Training diverged.",
    RefusalReason.FAILED: "The node failed. Its own log says why.",
}


PASSING = frozenset(
    {
        RefusalReason.LEDGER,
        RefusalReason.NO_ROOM,
        RefusalReason.DIVERGED,
        RefusalReason.FAILED,
        RefusalReason.ORDER_PAST,
        RefusalReason.TOO_MANY_ATTEMPTS,
        RefusalReason.NO_KEYS,
        RefusalReason.SET_UP_PAST,
        RefusalReason.SUM_OVER,
        RefusalReason.JOIN_AGAIN,
    }
)
"""Reasons that hold for one order and not for the whole run: the next order may succeed."""


class ProtocolError(Exception):
    """A message that cannot be used. The reason repeats nothing of its content.

    Attributes:
        reason: Why it cannot be used.
    """

    def __init__(self, reason: RefusalReason) -> None:
        super().__init__(str(reason))
        self.reason = reason
