"""Messages that are for somebody else, from a stranger, or of another form."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpfl.protocol import task_messages
from tests.node.loopback import (
    TASK,
    Asked,
    Open,
    ask,
    join,
    work,
)  # fmt: skip
from tests.node.test_service import unmoved

OTHER = Ed25519PrivateKey.from_private_bytes(bytes(32))


def test_an_owner_cannot_order_in_the_run_of_another(opened: Open) -> None:
    from dpfl.protocol.keys import public_key_hex

    node = opened(owners={"other": public_key_hex(OTHER.public_key())})
    node(join())
    for message in (work(key=OTHER), join(key=OTHER), ask("ask-statement", key=OTHER)):
        unmoved(node, message, "wrong-run")


def test_letters_of_a_stranger_or_for_another_node_are_refused(node: Asked) -> None:
    unmoved(node, work(key=OTHER), "bad-signature")
    unmoved(node, join(key=OTHER), "bad-signature")
    unmoved(node, work(to="a"), "wrong-node")
    message = work()
    for data, reason in (
        (message[:-1], "bad-signature"),
        (b"", "not-a-letter"),
        (b"x" * (1 << 21) + b"x", "too-large"),
    ):
        unmoved(node, data, reason)


@pytest.mark.parametrize("kind", ["train", "evaluate", "reply", "query", "", "joined", "__class__"])
def test_an_unknown_message_is_refused(node: Asked, kind: str) -> None:
    unmoved(node, ask(kind), "unknown-message")


@pytest.mark.parametrize(
    "message",
    [
        work(more=1),
        join(more=1),
        ask("ping", to="*", more=1),
        ask("join"),
        ask("work"),
        ask("join", proposal={}),
        ask("work", order="0/train", task={"part": "task"}),
        work(order="1/train"),
        work(order="0/probe"),
        work(order=3),
        work(run="../../etc"),
        work(run=""),
        ask("join", proposal=[["a"]] * 3),
        join(run="a" * 65),
        ask("work", order="0/query.histogram", task=task_messages.task_to_words(TASK)),
    ],
)
def test_words_that_are_missing_unknown_or_of_another_type_are_refused(
    node: Asked, message: bytes
) -> None:
    unmoved(node, message, "bad-words")
