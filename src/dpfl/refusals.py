"""Why a node refuses a message: a fixed list of reasons, with one fixed sentence for each. None of
them says anything about data.
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
        "The message is of another version of dpfl: install the same version at the server and at "
        "its nodes."
    ),
    RefusalReason.TOO_LARGE: "The message, or what it asks for, is larger than the node's policy "
    "allows.",
    RefusalReason.BAD_SIGNATURE: "The message is not signed by a key that the node's policy names.",
    RefusalReason.BAD_HEAD: "The head of the message is not written as messages are.",
    RefusalReason.BAD_ARRAYS: "The arrays of the message are not those that it announces.",
    RefusalReason.NOT_FINITE: "An array of the message holds numbers that are not finite.",
    RefusalReason.UNKNOWN_MESSAGE: "The node knows no message of this kind.",
    RefusalReason.UNKNOWN_PART: "The message names a part that the node does not know.",
    RefusalReason.BAD_WORDS: "A field of the message is missing, unknown, of another type or out "
    "of range.",
    RefusalReason.WRONG_NODE: "The message is for another node.",
    RefusalReason.WRONG_RUN: "The run was proposed otherwise before, or by another owner.",
    RefusalReason.NOT_JOINED: "The node did not join this run.",
    RefusalReason.ORDER_CHANGED: "The same order came before with another content.",
    RefusalReason.ORDER_PAST: "The order is of a round that is over.",
    RefusalReason.TOO_MANY_ATTEMPTS: "The order was begun too often without an end.",
    RefusalReason.OVER_BUDGET: "The node's budget has no room for it.",
    RefusalReason.NOT_PLANNED: "The run did not say beforehand that it would make this release, or "
    "so many.",
    RefusalReason.TOO_LITTLE_NOISE: "The noise multiplier is below the least that the node's "
    "policy allows.",
    RefusalReason.CLIP_TOO_LARGE: "The clip is above the largest that the node's policy allows.",
    RefusalReason.WEIGHTS_TOO_LARGE: "The model holds a larger weight, or a smaller scale, than "
    "the node's policy allows.",
    RefusalReason.TOO_MUCH_MEMORY: "The features of the model would take more memory than the "
    "node's policy allows.",
    RefusalReason.TOO_MANY_STEPS: "These are more steps than the node's policy allows.",
    RefusalReason.TOO_MANY_ROUNDS: "These are more rounds than the node's policy allows, or than "
    "the run said.",
    RefusalReason.RATE_TOO_HIGH: "The sampling rate is above the largest that the node's policy "
    "allows.",
    RefusalReason.VARIANT_NOT_ALLOWED: "The node's policy does not allow this variant.",
    RefusalReason.SYSTEM_NOT_ALLOWED: "The node's policy does not allow this system.",
    RefusalReason.MODEL_NOT_ALLOWED: "The node's policy does not allow this model, or it does not "
    "fit.",
    RefusalReason.RAW_VALUES: "The node's policy lets no raw values out.",
    RefusalReason.WITHOUT_NOISE: "The node's policy lets nothing out without noise.",
    RefusalReason.NOT_TRUSTED: "The node's policy does not leave the noise to the server.",
    RefusalReason.UNCOVERED: "The noise does not cover what one unit can change.",
    RefusalReason.NOT_SECURE: "The node's policy asks for secure noise.",
    RefusalReason.OTHER_SCHEMA: "The node's samples have another form than the run's.",
    RefusalReason.OTHER_UNIT: "The node's ledger counts for another unit, or for other neighbours.",
    RefusalReason.SIZE_NOT_EXACT: (
        "Batches of a fixed size need the exact number of units, which the node's policy does not "
        "declare."
    ),
    RefusalReason.NO_SUMS: "The node's policy has no members to sum with securely.",
    RefusalReason.UNKNOWN_MEMBER: "The run names a member of its sums by a key that the node's "
    "policy does not have for it.",
    RefusalReason.TOO_FEW_COLLUDERS: "The noise counts on more clients than the node's policy "
    "trusts not to help the server.",
    RefusalReason.TOO_FEW_SURVIVORS: "These are fewer clients than the node adds its numbers to.",
    RefusalReason.UNMASKED: "The run said that its sums are secure, or that they are not, and this "
    "order is of the other kind.",
    RefusalReason.BAD_KEYS: "The keys that were shown are not those of the run's members, each "
    "signed by its own for this run.",
    RefusalReason.NO_KEYS: "The node has no keys for this sum: it was started since, or set up "
    "anew.",
    RefusalReason.SET_UP_PAST: (
        "Keys were agreed for this run since, by a later set-up or before the clock of its owner "
        "was set back."
    ),
    RefusalReason.SUM_OVER: "This sum is not under way at the node: it is of another round, was "
    "opened before, or is past.",
    RefusalReason.BAD_SURVIVORS: "Those who were shown are not members of this sum, each once, and "
    "the node among them.",
    RefusalReason.OTHER_SURVIVORS: "The node was shown the survivors of this sum before.",
    RefusalReason.TOO_FEW_VOTES: "Too few members signed the survivors that the node was shown.",
    RefusalReason.JOIN_AGAIN: (
        "The node was started since it joined this run: ask it to join again, with the heads that "
        "it signed."
    ),
    RefusalReason.ROLLED_BACK: "The node's ledger lacks releases that the node signed: its owner "
    "has to reconcile it first.",
    RefusalReason.LEDGER: "The node's ledger cannot be used now.",
    RefusalReason.NO_ROOM: "The node's disk has no room for a reply.",
    RefusalReason.DIVERGED: "Training left all bounds.",
    RefusalReason.FAILED: "The node failed; its own log says at what.",
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
