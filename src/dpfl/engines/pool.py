"""The engine that trains clients in worker processes with one thread each.

The data, the model and the updates lie in mapped files that all processes share
(`shared_memory.py`). Only tasks and replies go through pipes. A worker that dies costs the reply
that it was computing; it is started again, and its next task goes to another worker.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import cycle
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
from torch import Tensor

from dpfl.client.context import ClientContext
from dpfl.client.runner import ClientRunner
from dpfl.client.task import ClientReply, ClientTask, RoundRequest
from dpfl.engines.serial import room_for
from dpfl.engines.shared_datasets import SharedDatasets
from dpfl.engines.shared_memory import MappedTensor, SharedFolder
from dpfl.errors import DpflError

SLOTS = 2
"""Places for updates per worker: it trains into one while the engine reads the other."""
TASKS_PER_WORKER = 8
"""With at least so many tasks per worker, each worker is given its next task in advance."""


class PoolEngine:
    """Trains clients in worker processes. Implements `dpfl.engines.Engine`.

    Clients with the most work are trained first, so that no worker starts a long task when the
    others have finished.
    """

    def __init__(self, context: ClientContext, size: int, workers: int) -> None:
        self._sizes = context.data.declared_sizes
        self._updates = torch.empty(0, size)
        vectors = 4 * size * (SLOTS * workers + 1)
        self._shared_folder = SharedFolder(SharedDatasets.bytes_of(context.data) + vectors)
        vector = self._shared_folder.put(torch.zeros(size))
        self._vector = vector.open()
        data = SharedDatasets.put(self._shared_folder, context.data)
        bare = replace(context, data=data.data)
        self._workers = []
        for _ in range(workers):
            slots = tuple(self._shared_folder.put(torch.zeros(size)) for _ in range(SLOTS))
            self._workers.append(_Worker(_WorkerSetup(bare, data, vector, slots)))

    def run(self, request: RoundRequest) -> list[ClientReply]:
        """Executes one round.

        Args:
            request: The tasks of the round and the model that they start from.

        Returns:
            One reply per task, in the order of the tasks. Their updates are valid until the next
            call.
        """
        self._vector.copy_(request.vector)
        self._updates = room_for(self._updates, len(request.tasks))
        rows = dict(zip((task.client for task in request.tasks), self._updates, strict=False))
        queue = deque(
            sorted(request.tasks, key=lambda task: -self._sizes[task.client] * task.steps)
        )
        # A second task in hand saves a worker the wait for the next one. With few tasks it could
        # leave another worker idle.
        depth = 2 if len(queue) >= TASKS_PER_WORKER * len(self._workers) else 1
        replies: dict[int, ClientReply] = {}
        while len(replies) < len(request.tasks):
            self._hand_out(queue, depth, request)
            busy = {worker.connection: worker for worker in self._workers if worker.tasks}
            for connection in wait(list(busy)):
                reply = self._receive(busy[connection], rows, queue)  # type: ignore[index]
                replies[reply.client] = reply
        return [replies[task.client] for task in request.tasks]

    def _hand_out(self, queue: deque[ClientTask], depth: int, request: RoundRequest) -> None:
        """Gives every worker up to `depth` tasks."""
        for level in range(depth):
            for worker in self._workers:
                if queue and len(worker.tasks) <= level:
                    with suppress(OSError):
                        worker.send(queue[0], request)
                        queue.popleft()

    def _receive(
        self, worker: _Worker, rows: dict[int, Tensor], queue: deque[ClientTask]
    ) -> ClientReply:
        """Takes a worker's reply.

        If the worker died, it is started again. Its current task has no reply, and its next task
        goes back to the queue.
        """
        task = worker.tasks[0]
        try:
            return worker.receive(rows[task.client])
        except (EOFError, ConnectionResetError):
            queue.extendleft(list(worker.tasks)[1:])
            worker.restart()
            return ClientReply(task.client, failure="its worker process died")

    def close(self) -> None:
        """Ends the worker processes and frees the shared memory."""
        for worker in self._workers:
            worker.disconnect()
        for worker in self._workers:
            worker.join()
        self._shared_folder.close()


def worker_context() -> Any:
    """Chooses how worker processes are started.

    Returns:
        A `multiprocessing` context. Where the platform has a fork server, workers are forked from
        one process that has imported what they need, once, and has computed nothing.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


@dataclass(frozen=True)
class _WorkerSetup:
    """The arguments with which a worker process starts. They are small, so that the engine need not
    wait for them.
    """

    context: ClientContext
    """The context without the tensors of its data."""
    data: SharedDatasets
    vector: MappedTensor
    slots: tuple[MappedTensor, ...]


def _serve(setup: _WorkerSetup, connection: Connection) -> None:
    """Runs a worker process: answers tasks until the engine closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    vector, slots = setup.vector.open(), cycle([slot.open() for slot in setup.slots])
    try:
        runner = ClientRunner(replace(setup.context, data=setup.data.open()))
        while True:
            task, correction = connection.recv()
            addend = None if correction is None else torch.from_numpy(correction)
            reply, slot = runner.reply(task, vector, addend), next(slots)
            if reply.update is not None:
                slot.copy_(reply.update)
                reply = replace(reply, update=None)
            connection.send(reply)
    except DpflError as error:
        connection.send(error)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


class _Worker:
    """The engine's side of a worker: the process, its pipe, its tasks in order, and its slots."""

    def __init__(self, setup: _WorkerSetup) -> None:
        self._setup = setup
        self._slots = [slot.open() for slot in setup.slots]
        self.start()

    def start(self) -> None:
        context = worker_context()
        self.connection, other_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(self._setup, other_end), daemon=True)
        self._process.start()
        other_end.close()
        self._next_slot = cycle(self._slots)
        self.tasks: deque[ClientTask] = deque()

    def send(self, task: ClientTask, request: RoundRequest) -> None:
        """Sends a task. A worker that died while it was idle is started again first."""
        correction = request.corrections.get(task.client)
        message = task, None if correction is None else correction.numpy()
        try:
            self.connection.send(message)
        except OSError:
            if self.tasks:
                raise
            self.restart()
            self.connection.send(message)
        self.tasks.append(task)

    def receive(self, row: Tensor) -> ClientReply:
        """Takes the reply that is ready, and copies its update into `row`."""
        reply = self.connection.recv()
        self.tasks.popleft()
        slot = next(self._next_slot)
        if isinstance(reply, DpflError):
            raise reply
        if reply.refusal or reply.failure or reply.numbers is not None:
            return reply
        return replace(reply, update=row.copy_(slot))

    def restart(self) -> None:
        self.disconnect()
        self.join()
        self.start()

    def disconnect(self) -> None:
        self.connection.close()

    def join(self) -> None:
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
