"""A letter as a Flower message: its bytes in pieces, each an object that one end pushes and the
other pulls by its hash.

A reader says how much it takes before it pulls anything, and asks for one piece after another, so
that no answer is larger than `LARGEST_ANSWER` and no letter larger than its `most`. Nothing is
inflated before all of it is there and of that size.
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
    """What was sent is no letter, is larger than its reader takes, or went missing on its way."""


class TaskToken:
    """The token of the task at hand, which every call but the taking of a task shows."""

    def __init__(self) -> None:
        self.text = ""

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        if self.text:
            context.request.headers[TASK_TOKEN_HEADER] = self.text
        return call_next(context)


def runtime(
    url: str, secret: bytes, token: TaskToken, component: str, verify: Any = True
) -> RuntimeHttpClient:
    """A client that takes tasks by the secret. Unlike Flower's own it never retries by itself nor
    ends its process.
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
    """Answers that are larger, or do not say how large they are, are not read."""

    def check(response: httpx.Response) -> None:
        size = response.headers.get("content-length", "")
        if not size.isdigit() or int(size) > most:
            raise UnreadableMessage

    client._client.event_hooks["response"].append(check)


def pack(letter: bytes) -> RecordDict:
    pieces = [letter[start : start + PIECE] for start in range(0, len(letter), PIECE)]
    return RecordDict(
        {f"{index:06d}": ConfigRecord({"piece": piece}) for index, piece in enumerate(pieces)}
    )


def unpack(content: RecordDict, most: int) -> bytes:
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


def instruction(letter: bytes, address: int, server: int, run: int, seconds: float) -> Message:
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
    return make_message(metadata=metadata, content=pack(letter))


def reply(to: Message, letter: bytes | None, reason: str = "") -> Message:
    """An error with a fixed reason where there is no letter: what went wrong is the node's own
    affair.
    """
    return Message(
        pack(letter) if letter is not None else Error(code=2, reason=reason), reply_to=to
    )


def push(client: RuntimeHttpClient, message: Message, node: int) -> str:
    """Returns its id. The message is known first, then its pieces follow; one to nobody is not
    taken.
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
        wanted = set(answer.objects_to_push)
        for name, part in get_all_nested_objects(message).items():
            if name in wanted:
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
    """The message of these objects; whoever kept them drops them, be they read or not. What is not
    there is not waited for by one who is `ending`."""
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
    """Nothing where they are too many or too large. They are waited for all the same: whoever drops
    what is still under way spoils it for the one who brings it."""
    names = list(dict.fromkeys(part.object_id for part in iterate_object_tree(tree)))
    left = most + (len(names) << 10) if len(names) <= 2 + -(-most // PIECE) else -1
    contents: dict[str, bytes] = {}
    for name in names:
        contents[name] = _object(client, name, node, run, ending)
        left -= len(contents[name])
        if left < 0:
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
