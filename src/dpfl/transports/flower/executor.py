"""At a node, in the place of Flower's own executor: takes what the SuperNode got, and has it
answered by code that is here.

The app of a run is never looked at, let alone installed or run. A message that is not ours is
answered with a fixed error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import httpx
from flwr.common.constant import SubStatus
from flwr.common.serde import message_from_proto
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullAppMessagesRequest,
    PullTaskInputRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.constant import TaskType

from dpfl.transports.flower import flower_messages
from dpfl.transports.flower.flower_messages import TaskToken, UnreadableMessage

REFUSED = "This node answers letters of dpfl, and nothing else."
TOO_LARGE = "The message is larger than this node takes, or no letter."
FAILED = "The node could not answer."
KINDS = (TaskType.CLIENT_APP, TaskType.AGENT_APP)
HEARTBEAT_SECONDS = 15.0

Answer = Callable[[bytes], bytes]


class Executor:
    """Answers letters one after another, for the SuperNode at an address of this machine; `most` is
    the size of the largest. Once it is `ending`, a letter that has not come whole is not waited
    for: its run may be over, and the rest never come."""

    def __init__(
        self,
        address: str,
        secret: bytes,
        answer: Answer,
        most: int,
        ending: Callable[[], bool] = lambda: False,
    ) -> None:
        self._token = TaskToken()
        self._client = flower_messages.runtime(
            f"http://{address}", secret, self._token, "SuperExec"
        )
        self._answer = answer
        self._most = most
        self._ending = ending

    def step(self) -> bool:
        """One task, if there is one."""
        self._token.text = ""
        taken = self._client.AcquireTask(AcquireTaskRequest(supported_task_types=KINDS))
        if not taken.token:
            return False
        self._token.text = taken.token
        with self._alive():
            self._client.PullTaskInput(PullTaskInputRequest())
            self._work()
            self._client.PushTaskOutput(
                PushTaskOutputRequest(sub_status=SubStatus.COMPLETED, details="")
            )
        return True

    def _work(self) -> None:
        pulled = self._client.PullMessages(PullAppMessagesRequest())
        if not pulled.messages_list:
            return
        message = message_from_proto(pulled.messages_list[0])
        tree = pulled.message_object_trees[0]
        node, run = message.metadata.dst_node_id, message.metadata.run_id
        message.metadata.__dict__["_message_id"] = tree.object_id
        letter, reason = None, REFUSED
        if message.metadata.message_type == flower_messages.KIND:
            letter, reason = self._reply(tree, node, run)
        else:
            with suppress(UnreadableMessage):
                flower_messages.pull(self._client, tree, node, run, 0, self._ending)
        flower_messages.push(self._client, flower_messages.reply(message, letter, reason), node)

    def _reply(
        self, tree: flower_messages.ObjectTree, node: int, run: int
    ) -> tuple[bytes | None, str]:
        try:
            message = flower_messages.pull(self._client, tree, node, run, self._most, self._ending)
            letter = flower_messages.unpack(message.content, self._most)
        except (UnreadableMessage, ValueError):
            return None, TOO_LARGE
        try:
            return self._answer(letter), ""
        except Exception:
            return None, FAILED

    @contextmanager
    def _alive(self) -> Iterator[None]:
        """A task without a sign of life for a minute is taken for crashed, and training may take
        longer.
        """
        done = threading.Event()

        def beat() -> None:
            while not done.wait(HEARTBEAT_SECONDS):
                try:
                    self._client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
                except (httpx.HTTPError, UnreadableMessage):
                    continue

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def close(self) -> None:
        self._client.close()
