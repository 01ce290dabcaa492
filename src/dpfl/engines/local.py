"""Clients on this machine: in this process, or on any number of worker processes with one thread
each.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import cycle
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

import torch
from torch import Tensor

from dpfl.client.context import ClientContext
from dpfl.client.runner import ClientRunner
from dpfl.client.task import ClientReply, ClientTask, RoundRequest
from dpfl.engines.shared_datasets import SharedDatasets
from dpfl.engines.shared_memory import MappedTensor, SharedFolder
from dpfl.errors import DpflError


class Engine(Protocol):
    def run(self, order: RoundRequest) -> list[ClientReply]:
        """One reply a task, in the order of the tasks."""

    def close(self) -> None: ...


def local_engine(site: ClientContext, size: int, workers: int = 1) -> Engine:
    """An engine for a model of `size` numbers; the result is the same for any number of workers."""
    if workers < 1:
        raise DpflError(f"engine.workers must be at least 1, not {workers}.")
    return SerialEngine(site) if workers == 1 else PoolEngine(site, size, workers)


@contextmanager
def one_thread() -> Iterator[None]:
    """The sums of a client depend on the number of threads, so it is the same everywhere."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class SerialEngine:
    def __init__(self, site: ClientContext) -> None:
        self._node = ClientRunner(site)
        self._updates = torch.empty(0, self._node.model.layout.size)

    def run(self, order: RoundRequest) -> list[ClientReply]:
        """Updates are valid until the next call: the room for them is used again."""
        self._updates = _room(self._updates, len(order.tasks))
        with one_thread():
            return [
                self._reply(order, task, row)
                for task, row in zip(order.tasks, self._updates, strict=False)
            ]

    def _reply(self, order: RoundRequest, task: ClientTask, row: Tensor) -> ClientReply:
        reply = self._node.reply(task, order.vector, order.corrections.get(task.client))
        return reply if reply.update is None else replace(reply, update=row.copy_(reply.update))

    def close(self) -> None:
        self._node.close()


def _room(updates: Tensor, clients: int) -> Tensor:
    """A row a client; memory that was used before costs less than new pages."""
    return updates if len(updates) >= clients else torch.empty(clients, updates.shape[1])


@dataclass(frozen=True)
class _Station:
    """What a worker process is started with: little, so that starting it does not wait until it can
    read.
    """

    context: ClientContext
    data: SharedDatasets
    vector: MappedTensor
    slots: tuple[MappedTensor, ...]

    def runner(self) -> ClientRunner:
        return ClientRunner(replace(self.context, data=self.data.open()))


def _serve(station: _Station, connection: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    vector, slots = station.vector.open(), cycle([slot.open() for slot in station.slots])
    try:
        node = station.runner()
        while True:
            task, correction = connection.recv()
            added = None if correction is None else torch.from_numpy(correction)
            reply, slot = node.reply(task, vector, added), next(slots)
            if reply.update is not None:
                slot.copy_(reply.update)
                reply = replace(reply, update=None)
            connection.send(reply)
    except DpflError as error:
        connection.send(error)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def processes() -> Any:
    """Workers are forked from a process that has imported what they need, once, and has computed
    nothing.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


class _Worker:
    """A process, the pipe to it, its tasks in the order that it makes them, and the slots where it
    leaves its updates.
    """

    def __init__(self, station: _Station) -> None:
        self._station = station
        self._slots = [slot.open() for slot in station.slots]
        self.start()

    def start(self) -> None:
        context = processes()
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(self._station, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._slot = cycle(self._slots)
        self.tasks: deque[ClientTask] = deque()

    def give(self, task: ClientTask, order: RoundRequest) -> None:
        """A worker that died while it had nothing to do is started again first."""
        correction = order.corrections.get(task.client)
        message = task, None if correction is None else correction.numpy()
        try:
            self.connection.send(message)
        except OSError:
            if self.tasks:
                raise
            self.restart()
            self.connection.send(message)
        self.tasks.append(task)

    def take(self, room: Tensor) -> ClientReply:
        """The reply that is waiting, its update copied to `room`."""
        answer = self.connection.recv()
        self.tasks.popleft()
        slot = next(self._slot)
        if isinstance(answer, DpflError):
            raise answer
        if answer.refused or answer.failed or answer.numbers is not None:
            return answer
        return replace(answer, update=room.copy_(slot))

    def restart(self) -> None:
        self.dismiss()
        self.join()
        self.start()

    def dismiss(self) -> None:
        self.connection.close()

    def join(self) -> None:
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


class PoolEngine:
    """Worker processes with the data and the model in shared memory; the largest clients go
    first.
    """

    def __init__(self, site: ClientContext, size: int, workers: int) -> None:
        self._sizes = site.data.declared
        self._updates = torch.empty(0, size)
        needed = SharedDatasets.bytes_of(site.data) + 4 * size * (2 * workers + 1)
        self._shared = SharedFolder(needed)
        shared = SharedDatasets.put(self._shared, site.data)
        vector = self._shared.put(torch.zeros(size))
        self._vector = vector.open()
        bare = replace(site, data=shared.data)
        slots = [
            tuple(self._shared.put(torch.zeros(size)) for _ in range(2)) for _ in range(workers)
        ]
        self._workers = [_Worker(_Station(bare, shared, vector, pair)) for pair in slots]

    def run(self, order: RoundRequest) -> list[ClientReply]:
        """Updates are valid until the next call: the room for them is used again."""
        self._vector.copy_(order.vector)
        self._updates = _room(self._updates, len(order.tasks))
        room = dict(zip((task.client for task in order.tasks), self._updates, strict=False))
        waiting = deque(
            sorted(order.tasks, key=lambda task: -self._sizes[task.client] * task.steps)
        )
        # A second task in hand saves a worker the wait for the next; of few tasks it could leave
        # another worker idle.
        ahead = 2 if len(waiting) >= 8 * len(self._workers) else 1
        replies: dict[int, ClientReply] = {}
        while len(replies) < len(order.tasks):
            self._hand_out(waiting, ahead, order)
            busy = {worker.connection: worker for worker in self._workers if worker.tasks}
            for connection in wait(list(busy)):
                reply = self._take(busy[connection], room, waiting)  # type: ignore[index]
                replies[reply.client] = reply
        return [replies[task.client] for task in order.tasks]

    def _hand_out(self, waiting: deque[ClientTask], ahead: int, order: RoundRequest) -> None:
        for depth in range(ahead):
            for worker in self._workers:
                if waiting and len(worker.tasks) <= depth:
                    with suppress(OSError):
                        worker.give(waiting[0], order)
                        waiting.popleft()

    def _take(
        self, worker: _Worker, room: dict[int, Tensor], waiting: deque[ClientTask]
    ) -> ClientReply:
        """A worker that died is started again; the task that it was at has no reply, the one after
        goes back.
        """
        at = worker.tasks[0]
        try:
            return worker.take(room[at.client])
        except (EOFError, ConnectionResetError):
            waiting.extendleft(list(worker.tasks)[1:])
            worker.restart()
            return ClientReply(at.client, failed="its worker process died")

    def close(self) -> None:
        for worker in self._workers:
            worker.dismiss()
        for worker in self._workers:
            worker.join()
        self._shared.close()
