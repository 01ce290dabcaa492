"""Our messages inside Flower messages: their bytes in pieces, which one end pushes and the other
pulls by their hashes.

A reader limits how much it takes before it pulls anything, and asks for one piece after another. So
no answer is larger than `LARGEST_ANSWER`, and no message larger than its `most`. Nothing is
inflated before all of it is there and of an allowed size.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

import httpx
from flwr.app import ConfigRecord, Error, Message, Metadata, RecordDict
from flwr.app.message import make_message, remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ObjectTree,
    PullObjectRequest,
    PushObjectRequest,
)
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import PushAppMessagesRequest
from flwr.supercore.constant import TASK_TOKEN_HEADER
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor, SuperExecAuthHttpInterceptor
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext
from flwr.supercore.runtime import RuntimeHttpClient

KIND = "query.dpfl"
PIECE = 4 << 20
LARGEST_ANSWER = 4 * PIECE
LIFE_SECONDS = 24 * 3600.0
PATIENCE_SECONDS = 60.0
NAP_SECONDS = 0.02
CALL_SECONDS = 20.0
TAKING = frozenset({"/flwr.proto.Runtime/AcquireTask"})


class UnreadableMessage(Exception):
    """A message is not one of ours, is larger than its reader takes, or was lost on its way."""


class TaskToken:
    """The token of the task at hand. Every call shows it, except the one that takes a task."""

    def __init__(self) -> None:
        self.text = ""

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        """Adds the token to a call.

        Args:
            context: The call.
            call_next: Makes the call.

        Returns:
            The response.
        """
        if self.text:
            context.request.headers[TASK_TOKEN_HEADER] = self.text
        return call_next(context)


def runtime(
    url: str, secret: bytes, token: TaskToken, component: str, verify: Any = True
) -> RuntimeHttpClient:
    """Creates a client of Flower's runtime interface.

    Unlike Flower's own client, it never retries by itself and never ends its process.

    Args:
        url: The address of the SuperLink or SuperNode.
        secret: The secret by which tasks are taken.
        token: The token of the task at hand.
        component: What we call ourselves to Flower.
        verify: The certificates to trust.

    Returns:
        The client.
    """
    client = RuntimeHttpClient(
        url,
        interceptors=[
            RuntimeVersionHttpInterceptor(component_name=component),
            SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=TAKING),
            token,
        ],
        verify=verify,
        timeout=CALL_SECONDS,
    )
    refuse_large(client, LARGEST_ANSWER)
    return client


class _Holder(Protocol):
    _client: httpx.Client


def refuse_large(client: _Holder, most: int) -> None:
    """Makes a client refuse answers that are too large, or do not say how large they are.

    Args:
        client: The client.
        most: The most bytes of an answer.
    """

    def check(response: httpx.Response) -> None:
        size = response.headers.get("content-length", "")
        if not size.isdigit() or int(size) > most:
            raise UnreadableMessage

    client._client.event_hooks["response"].append(check)


def pack(message: bytes) -> RecordDict:
    """Cuts a message into pieces.

    Args:
        message: The bytes.

    Returns:
        The pieces, as Flower carries them.
    """
    pieces = [message[start : start + PIECE] for start in range(0, len(message), PIECE)]
    return RecordDict(
        {f"{index:06d}": ConfigRecord({"piece": piece}) for index, piece in enumerate(pieces)}
    )


def unpack(content: RecordDict, most: int) -> bytes:
    """Puts the pieces of a message together.

    Args:
        content: The pieces, as Flower carried them.
        most: The most bytes.

    Returns:
        The bytes.

    Raises:
        UnreadableMessage: The content is anything else, or too large.
    """
    pieces: list[bytes] = []
    for index, (name, record) in enumerate(sorted(content.items())):
        if (
            name != f"{index:06d}"
            or not isinstance(record, ConfigRecord)
            or set(record) != {"piece"}
        ):
            raise UnreadableMessage
        if not isinstance(piece := record["piece"], bytes):
            raise UnreadableMessage
        pieces.append(piece)
    if sum(map(len, pieces)) > most:
        raise UnreadableMessage
    return b"".join(pieces)


def instruction(content: bytes, address: int, server: int, run: int, seconds: float) -> Message:
    """Makes the Flower message that carries a message to a node.

    Args:
        content: The bytes.
        address: The node's id.
        server: Our own id.
        run: Our run at the SuperLink.
        seconds: After so long nobody may take it.

    Returns:
        The Flower message.
    """
    metadata = Metadata(
        run_id=run,
        message_id="",
        src_node_id=server,
        dst_node_id=address,
        reply_to_message_id="",
        group_id="",
        created_at=time.time(),
        ttl=seconds,
        message_type=KIND,
    )
    return make_message(metadata=metadata, content=pack(content))


def reply(to: Message, answer: bytes | None, reason: str = "") -> Message:
    """Makes the Flower message that carries an answer back.

    Args:
        to: The Flower message that is answered.
        answer: The bytes; None where there is no answer.
        reason: A fixed reason for that. What went wrong is the node's own affair.

    Returns:
        The Flower message.
    """
    if answer is None:
        return Message(Error(code=2, reason=reason), reply_to=to)
    return Message(pack(answer), reply_to=to)


def push(client: RuntimeHttpClient, message: Message, node: int) -> str:
    """Pushes a Flower message: first the message, then its pieces.

    Args:
        client: The client.
        message: The Flower message.
        node: Our own id.

    Returns:
        The id of the message.

    Raises:
        UnreadableMessage: Flower does not take it, for example because there is no such node.
    """
    with no_object_id_recompute():
        message.metadata.__dict__["_message_id"] = message.object_id
        answer = client.PushMessages(
            PushAppMessagesRequest(
                messages_list=[message_to_proto(remove_content_from_message(message))],
                message_object_trees=[get_object_tree(message)],
            )
        )
        if list(answer.message_ids) != [message.metadata.message_id]:
            raise UnreadableMessage
        missing = set(answer.objects_to_push)
        for name, part in get_all_nested_objects(message).items():
            if name in missing:
                client.PushObject(
                    PushObjectRequest(
                        node=Node(node_id=node),
                        run_id=message.metadata.run_id,
                        object_id=name,
                        object_content=part.deflate(),
                        session_id=answer.session_id,
                    )
                )
    return str(message.metadata.message_id)


def pull(
    client: RuntimeHttpClient,
    tree: ObjectTree,
    node: int,
    run: int,
    most: int,
    ending: Callable[[], bool] = lambda: False,
) -> Message:
    """Pulls a Flower message. Whoever kept its pieces drops them, whether they could be read or
    not.

    Args:
        client: The client.
        tree: The ids of the pieces.
        node: Our own id.
        run: The run at the SuperLink.
        most: The most bytes.
        ending: Whether to stop waiting for pieces that are not there.

    Returns:
        The Flower message.

    Raises:
        UnreadableMessage: It is too large, is no message, or pieces of it are missing.
    """
    contents = _contents(client, tree, node, run, most, ending)
    client.ConfirmMessageReceived(
        ConfirmMessageReceivedRequest(
            node=Node(node_id=node), run_id=run, message_object_id=tree.object_id
        )
    )
    try:
        message = inflate_object_from_contents(tree.object_id, contents)
    except Exception as error:
        raise UnreadableMessage from error
    if not isinstance(message, Message):
        raise UnreadableMessage
    message.metadata.__dict__["_message_id"] = tree.object_id
    return message


def _contents(
    client: RuntimeHttpClient,
    tree: ObjectTree,
    node: int,
    run: int,
    most: int,
    ending: Callable[[], bool],
) -> dict[str, bytes]:
    """Pulls the pieces, and returns none where they are too many or too large. All of them are
    pulled even so: dropping pieces that are still under way would spoil the call of whoever is
    pushing them.
    """
    names = list(dict.fromkeys(part.object_id for part in iterate_object_tree(tree)))
    remaining = most + (len(names) << 10) if len(names) <= 2 + -(-most // PIECE) else -1
    contents: dict[str, bytes] = {}
    for name in names:
        contents[name] = _object(client, name, node, run, ending)
        remaining -= len(contents[name])
        if remaining < 0:
            contents.clear()
    return contents


def _object(
    client: RuntimeHttpClient, name: str, node: int, run: int, ending: Callable[[], bool]
) -> bytes:
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        answer = client.PullObject(
            PullObjectRequest(node=Node(node_id=node), run_id=run, object_id=name)
        )
        if answer.object_available:
            return bytes(answer.object_content)
        if not answer.object_found or ending():
            break
        time.sleep(NAP_SECONDS)
    raise UnreadableMessage
