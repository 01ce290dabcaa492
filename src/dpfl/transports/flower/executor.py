"""Executes what a SuperNode received, in the place of Flower's own executor.

The app of a Flower run is never looked at, let alone installed or run: messages are answered by
code that is installed here. A message that is not ours is answered with a fixed error.
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

REFUSAL = "This node answers only messages of dpfl."
TOO_LARGE = "The message is too large for this node, or is not a message of dpfl."
FAILURE = "The node could not answer."
KINDS = (TaskType.CLIENT_APP, TaskType.AGENT_APP)
HEARTBEAT_SECONDS = 15.0

Answer = Callable[[bytes], bytes]


class Executor:
    """Answers messages one after another for a SuperNode on this machine.

    Once `ending` says so, a message that has not come whole is not waited for: its run may be over,
    and the rest may never come.
    """

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
        """Answers one message, if there is one.

        Returns:
            Whether there was one.
        """
        self._token.text = ""
        task = self._client.AcquireTask(AcquireTaskRequest(supported_task_types=KINDS))
        if not task.token:
            return False
        self._token.text = task.token
        with self._alive():
            self._client.PullTaskInput(PullTaskInputRequest())
            self._work()
            self._client.PushTaskOutput(
                PushTaskOutputRequest(sub_status=SubStatus.COMPLETED, details="")
            )
        return True

    def _work(self) -> None:
        response = self._client.PullMessages(PullAppMessagesRequest())
        if not response.messages_list:
            return
        message = message_from_proto(response.messages_list[0])
        tree = response.message_object_trees[0]
        node, run = message.metadata.dst_node_id, message.metadata.run_id
        message.metadata.__dict__["_message_id"] = tree.object_id
        answer, reason = None, REFUSAL
        if message.metadata.message_type == flower_messages.KIND:
            answer, reason = self._reply(tree, node, run)
        else:
            with suppress(UnreadableMessage):
                flower_messages.pull(self._client, tree, node, run, 0, self._ending)
        flower_messages.push(self._client, flower_messages.reply(message, answer, reason), node)

    def _reply(
        self, tree: flower_messages.ObjectTree, node: int, run: int
    ) -> tuple[bytes | None, str]:
        try:
            message = flower_messages.pull(self._client, tree, node, run, self._most, self._ending)
            content = flower_messages.unpack(message.content, self._most)
        except (UnreadableMessage, ValueError):
            return None, TOO_LARGE
        try:
            return self._answer(content), ""
        except Exception:
            return None, FAILURE

    @contextmanager
    def _alive(self) -> Iterator[None]:
        """Sends signs of life. Flower takes a task without one for a minute as crashed, and
        training may take longer.
        """
        end = threading.Event()

        def beat() -> None:
            while not end.wait(HEARTBEAT_SECONDS):
                try:
                    self._client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
                except (httpx.HTTPError, UnreadableMessage):
                    continue

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()

    def close(self) -> None:
        """Closes the connection to the SuperNode."""
        self._client.close()
