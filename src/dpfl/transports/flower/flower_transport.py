"""Letters of the server over a SuperLink: in the place of a server app, by pushes and short polls.

The run at the SuperLink is a wrapper without code: what a letter is about stands in the letter.
Where the SuperLink is away, letters wait here and are sent when it is back; where it has given our
wrapper up there is a new one, and what was under way is lost. A letter that nobody has taken `life`
seconds after it was sent is lost too: a node that comes late trains for no round that is over.
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
    """A `dpfl.protocol.transport.Post`. Used from one thread; a second one only tells the SuperLink
    that we live.
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
        self._waiting: dict[str, tuple[str, bytes]] = {}
        self._sent: dict[str, tuple[str, str, float]] = {}
        self._come: list[Delivery] = []
        self._checked = time.monotonic()
        self._closed = threading.Event()
        try:
            self._open()
        except httpx.HTTPStatusError as error:
            raise DpflError(
                f"The SuperLink {server} refuses us ({error.response.status_code}); is the secret "
                "its own?"
            ) from error
        except httpx.HTTPError as error:
            raise DpflError(f"The SuperLink {server} cannot be reached ({error}).") from error
        threading.Thread(target=self._beat, daemon=True).start()

    def nodes(self) -> Sequence[str]:
        answer = self._asked(lambda: self._client.GetNodes(GetNodesRequest()))
        return [str(node.node_id) for node in answer.nodes] if answer is not None else []

    def send(self, address: str, letter: bytes) -> str:
        ticket = uuid.uuid4().hex
        self._waiting[ticket] = (address, letter)
        self._push()
        return ticket

    def receive(self, seconds: float) -> list[Delivery]:
        until, nap = time.monotonic() + seconds, FIRST_NAP
        while True:
            self._push()
            self._pull()
            self._give_up()
            come, self._come = self._come, []
            if come or time.monotonic() >= until:
                return come
            time.sleep(max(0.0, min(nap, until - time.monotonic())))
            nap = min(LAST_NAP, nap * 1.3)

    def close(self) -> None:
        self._closed.set()
        self._asked(
            lambda: self._client.PushTaskOutput(
                PushTaskOutputRequest(sub_status=SubStatus.COMPLETED, details="")
            )
        )
        self._client.close()

    def _open(self) -> None:
        """A run of our own at the SuperLink, taken by the hash of its wrapper, so that nobody
        else's is.
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
        for ticket, (address, letter) in list(self._waiting.items()):
            message = flower_messages.instruction(
                letter, int(address), SUPERLINK_NODE_ID, self._run, self._life
            )
            try:
                name = self._tried(
                    partial(flower_messages.push, self._client, message, SUPERLINK_NODE_ID)
                )
            except UnreadableMessage:
                name = ""
            if name is None:
                return
            del self._waiting[ticket]
            if name:
                self._sent[name] = (ticket, address, time.time())
            else:
                self._come.append(Delivery(address, ticket, None))

    def _pull(self) -> None:
        if not self._sent:
            return
        request = PullAppMessagesRequest(message_ids=list(self._sent))
        answer = self._asked(lambda: self._client.PullMessages(request))
        for message, tree in (
            zip(answer.messages_list, answer.message_object_trees, strict=True)
            if answer is not None
            else ()
        ):
            ticket, address, _ = self._sent.pop(message.metadata.reply_to_message_id, ("", "", 0.0))
            if ticket:
                self._come.append(Delivery(address, ticket, self._letter(tree)))

    def _give_up(self) -> None:
        """What a node got before it was started again is lost with it, and Flower says so only if
        it is asked in between.
        """
        if not self._sent or time.monotonic() < self._checked + CHECK_SECONDS:
            return
        self._checked = time.monotonic()
        answer = self._asked(lambda: self._client.GetNodes(GetNodesRequest()))
        since = (
            {str(node.node_id): _seconds(node.last_activated_at) for node in answer.nodes}
            if answer is not None
            else {}
        )
        for name, (ticket, address, at) in list(self._sent.items()):
            if since.get(address, 0.0) > at:
                del self._sent[name]
                self._come.append(Delivery(address, ticket, None))

    def _letter(self, tree: ObjectTree) -> bytes | None:
        """None where Flower says that it was lost, or it got lost just now."""
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

    def _asked(self, call: Callable[[], T]) -> T | None:
        try:
            return self._tried(call)
        except UnreadableMessage:
            return None

    def _tried(self, call: Callable[[], T]) -> T | None:
        """None where the SuperLink is away, or has given our run up; raises where it will not have
        this.
        """
        try:
            return call()
        except httpx.HTTPStatusError as error:
            if error.response.status_code in (401, 403) and not self._closed.is_set():
                self._come += [
                    Delivery(address, ticket, None) for ticket, address, _ in self._sent.values()
                ]
                self._sent.clear()
                with suppress(httpx.HTTPError, UnreadableMessage):
                    self._open()
            elif error.response.status_code < 500:
                raise UnreadableMessage from error
            return None
        except httpx.TransportError:
            return None

    def _beat(self) -> None:
        while not self._closed.wait(HEARTBEAT_SECONDS):
            with suppress(httpx.HTTPError, UnreadableMessage):
                self._client.SendTaskHeartbeat(SendTaskHeartbeatRequest())


def _seconds(moment: str) -> float:
    return datetime.datetime.fromisoformat(moment).timestamp() if moment else 0.0


def _wrapper() -> bytes:
    """An app bundle that names no code; another one each time."""
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as bundle:
        bundle.writestr("pyproject.toml", WRAPPER.format(nonce=uuid.uuid4().hex))
    return buffer.getvalue()
