"""Carries the server's messages over a SuperLink, in the place of a Flower server app.

To the SuperLink, our run is an app bundle that names no code; all that matters is in the messages.

- While the SuperLink is away, messages wait here, and are sent when it is back.
- If the SuperLink has given up our run, a new one is started, and what was under way is lost.
- A message that no node has taken `life` seconds after it was sent is lost. A node that comes late
  therefore does not train for a round that is over.
"""

from __future__ import annotations

import datetime
import hashlib
import threading
import time
import uuid
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TypeVar

import httpx
from flwr.common.constant import SUPERLINK_NODE_ID, SubStatus
from flwr.proto.control_pb2 import StartRunRequest
from flwr.proto.fab_pb2 import Fab
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    GetNodesRequest,
    PullAppMessagesRequest,
    PullTaskInputRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)

from dpfl.errors import DpflError
from dpfl.protocol.transport import Delivery
from dpfl.transports.flower import flower_messages
from dpfl.transports.flower.flower_messages import LIFE_SECONDS, TaskToken, UnreadableMessage
from dpfl.transports.flower.processes import control, trusting

WRAPPER = """[project]
name = "dpfl"
version = "1.0.0"
description = "{nonce}"
[tool.flwr.app]
publisher = "dpfl"
[tool.flwr.app.components]
serverapp = "nothing:app"
clientapp = "nothing:app"
"""
HEARTBEAT_SECONDS = 10.0
CHECK_SECONDS = 2.0
FIRST_NAP, LAST_NAP = 0.02, 0.2

T = TypeVar("T")


class FlowerTransport:
    """Carries messages over a SuperLink. Implements `dpfl.protocol.transport.Transport`.

    It is used from one thread. A second thread only tells the SuperLink that we are alive.
    """

    def __init__(
        self, server: str, authority: Path, secret: bytes, most: int, life: float = LIFE_SECONDS
    ) -> None:
        self._server, self._authority, self.most, self._life = server, authority, most, life
        self._token = TaskToken()
        self._client = flower_messages.runtime(
            f"https://{server}", secret, self._token, "flwr-serverapp", trusting(authority)
        )
        self._run = 0
        self._unsent: dict[str, tuple[str, bytes]] = {}
        """By request id: address and message."""
        self._under_way: dict[str, tuple[str, str, float]] = {}
        """By Flower's message id: request id, address, and when it was sent."""
        self._deliveries: list[Delivery] = []
        self._last_check = time.monotonic()
        self._closing = threading.Event()
        try:
            self._open()
        except httpx.HTTPStatusError as error:
            raise DpflError(
                f"The SuperLink {server} refuses this server ({error.response.status_code}); check "
                "that both use the same secret."
            ) from error
        except httpx.HTTPError as error:
            raise DpflError(f"The SuperLink {server} cannot be reached ({error}).") from error
        threading.Thread(target=self._beat, daemon=True).start()

    def nodes(self) -> Sequence[str]:
        """Lists the nodes that are connected now.

        Returns:
            Their ids at the SuperLink; none while it is away.
        """
        answer = self._call(lambda: self._client.GetNodes(GetNodesRequest()))
        return [str(node.node_id) for node in answer.nodes] if answer is not None else []

    def send(self, address: str, message: bytes) -> str:
        """Sends a message without waiting for its answer.

        Args:
            address: A node's id at the SuperLink.
            message: The signed message.

        Returns:
            The request id.
        """
        request_id = uuid.uuid4().hex
        self._unsent[request_id] = (address, message)
        self._push()
        return request_id

    def receive(self, seconds: float) -> list[Delivery]:
        """Collects what has come back since the last call.

        Args:
            seconds: How long to wait if nothing is there.

        Returns:
            The deliveries.
        """
        until, nap = time.monotonic() + seconds, FIRST_NAP
        while True:
            self._push()
            self._pull()
            self._give_up()
            deliveries, self._deliveries = self._deliveries, []
            if deliveries or time.monotonic() >= until:
                return deliveries
            time.sleep(max(0.0, min(nap, until - time.monotonic())))
            nap = min(LAST_NAP, nap * 1.3)

    def close(self) -> None:
        """Ends our run at the SuperLink."""
        self._closing.set()
        self._call(
            lambda: self._client.PushTaskOutput(
                PushTaskOutputRequest(sub_status=SubStatus.COMPLETED, details="")
            )
        )
        self._client.close()

    def _open(self) -> None:
        """Starts a run at the SuperLink, and takes its task by the hash of its bundle, which is
        ours alone.
        """
        content = _wrapper()
        digest = hashlib.sha256(content).hexdigest()
        self._token.text = ""
        with control(self._server, self._authority) as client:
            self._run = client.StartRun(
                StartRunRequest(fab=Fab(hash_str=digest, content=content))
            ).run_id
        self._token.text = self._client.AcquireTask(
            AcquireTaskRequest(agentapp_fab_hashes=[digest])
        ).token
        self._client.PullTaskInput(PullTaskInputRequest())

    def _push(self) -> None:
        for request_id, (address, content) in list(self._unsent.items()):
            message = flower_messages.instruction(
                content, int(address), SUPERLINK_NODE_ID, self._run, self._life
            )
            try:
                name = self._try(
                    partial(flower_messages.push, self._client, message, SUPERLINK_NODE_ID)
                )
            except UnreadableMessage:
                name = ""
            if name is None:
                return
            del self._unsent[request_id]
            if name:
                self._under_way[name] = (request_id, address, time.time())
            else:
                self._deliveries.append(Delivery(address, request_id, None))

    def _pull(self) -> None:
        if not self._under_way:
            return
        request = PullAppMessagesRequest(message_ids=list(self._under_way))
        answer = self._call(lambda: self._client.PullMessages(request))
        for message, tree in (
            zip(answer.messages_list, answer.message_object_trees, strict=True)
            if answer is not None
            else ()
        ):
            name = message.metadata.reply_to_message_id
            request_id, address, _ = self._under_way.pop(name, ("", "", 0.0))
            if request_id:
                self._deliveries.append(Delivery(address, request_id, self._content(tree)))

    def _give_up(self) -> None:
        """Counts messages as lost that a node had received when it was started again. Flower says
        so only if it is asked in between.
        """
        if not self._under_way or time.monotonic() < self._last_check + CHECK_SECONDS:
            return
        self._last_check = time.monotonic()
        answer = self._call(lambda: self._client.GetNodes(GetNodesRequest()))
        since = (
            {str(node.node_id): _seconds(node.last_activated_at) for node in answer.nodes}
            if answer is not None
            else {}
        )
        for name, (request_id, address, send_time) in list(self._under_way.items()):
            if since.get(address, 0.0) > send_time:
                del self._under_way[name]
                self._deliveries.append(Delivery(address, request_id, None))

    def _content(self, tree: ObjectTree) -> bytes | None:
        """Pulls the bytes of an answer; None where Flower says that it was lost, or it got lost
        now.
        """
        try:
            message = flower_messages.pull(
                self._client, tree, SUPERLINK_NODE_ID, self._run, self.most
            )
            return (
                flower_messages.unpack(message.content, self.most)
                if message.has_content()
                else None
            )
        except (httpx.HTTPError, UnreadableMessage):
            return None

    def _call(self, call: Callable[[], T]) -> T | None:
        try:
            return self._try(call)
        except UnreadableMessage:
            return None

    def _try(self, call: Callable[[], T]) -> T | None:
        """Returns the result of a call; None where the SuperLink is away, or has given up our run.

        Raises:
            UnreadableMessage: The SuperLink refuses this very call.
        """
        try:
            return call()
        except httpx.HTTPStatusError as error:
            if error.response.status_code in (401, 403) and not self._closing.is_set():
                self._deliveries += [
                    Delivery(address, request_id, None)
                    for request_id, address, _ in self._under_way.values()
                ]
                self._under_way.clear()
                with suppress(httpx.HTTPError, UnreadableMessage):
                    self._open()
            elif error.response.status_code < 500:
                raise UnreadableMessage from error
            return None
        except httpx.TransportError:
            return None

    def _beat(self) -> None:
        while not self._closing.wait(HEARTBEAT_SECONDS):
            with suppress(httpx.HTTPError, UnreadableMessage):
                self._client.SendTaskHeartbeat(SendTaskHeartbeatRequest())


def _seconds(moment: str) -> float:
    return datetime.datetime.fromisoformat(moment).timestamp() if moment else 0.0


def _wrapper() -> bytes:
    """Makes an app bundle that names no code; another one each time."""
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as bundle:
        bundle.writestr("pyproject.toml", WRAPPER.format(nonce=uuid.uuid4().hex))
    return buffer.getvalue()
