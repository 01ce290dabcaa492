"""Clients on this machine: in this process, or on any number of worker processes with one thread each."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Protocol

import torch
from torch import Tensor

from dpfl.client.node import Node, Site
from dpfl.client.task import Order, Reply, Task
from dpfl.engines.shared import Mapped, SharedFolder
from dpfl.errors import DpflError


class Engine(Protocol):
    def run(self, order: Order) -> list[Reply]:
        """One reply a task, in the order of the tasks."""

    def close(self) -> None: ...


def local_engine(site: Site, size: int, workers: int = 1) -> Engine:
    """An engine for a model of `size` numbers; the result is the same for any number of workers."""
    if workers < 1:
        raise DpflError(f"engine.workers must be at least 1, not {workers}.")
    return InProcess(site) if workers == 1 else Workers(site, size, workers)


@contextmanager
def one_thread() -> Iterator[None]:
    """The sums of a client depend on the number of threads, so it is the same everywhere."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class InProcess:
    def __init__(self, site: Site) -> None:
        self._node = Node(site)

    def run(self, order: Order) -> list[Reply]:
        with one_thread():
            return [_work(self._node, task, order.vector, order.digest) for task in order.tasks]

    def close(self) -> None:
        self._node.close()


def _work(node: Node, task: Task, vector: Tensor, digest: str) -> Reply:
    """A client's failure costs that client's reply, not the round; what the user must mend ends the run."""
    try:
        return node.work(task, vector, digest)
    except DpflError:
        raise
    except Exception as error:
        return Reply(task.client, failed=f"{type(error).__name__}: {error}")


@dataclass(frozen=True)
class _Station:
    """What a worker process is started with."""

    site: Site
    x: Mapped
    y: Mapped
    vector: Mapped
    update: Mapped


def _serve(station: _Station, connection: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    vector, update = station.vector.open(), station.update.open()
    try:
        node = Node(replace(station.site, x=station.x.open(), y=station.y.open()))
        while True:
            task, digest = connection.recv()
            reply = _work(node, task, vector, digest)
            if reply.update is not None:
                update.copy_(reply.update)
                reply = replace(reply, update=None)
            connection.send(reply)
    except DpflError as error:
        connection.send(error)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


class _Worker:
    """A process, the pipe to it, and the place where it leaves its updates."""

    def __init__(self, station: _Station) -> None:
        self._station = station
        self.update = station.update.open()
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(self._station, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self.task: Task | None = None

    def give(self, task: Task, digest: str) -> None:
        """A worker that died while it had nothing to do is started again first."""
        try:
            self.connection.send((task, digest))
        except OSError:
            self.stop()
            self.start()
            self.connection.send((task, digest))
        self.task = task

    def take(self) -> Reply:
        """The reply that is waiting; a worker that died is started again, and its client's reply is lost."""
        task = self.task
        assert task is not None
        try:
            answer = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.stop()
            self.start()
            return Reply(task.client, failed="its worker process died")
        self.task = None
        if isinstance(answer, DpflError):
            raise answer
        succeeded = not (answer.refused or answer.failed)
        return replace(answer, update=self.update.clone()) if succeeded else answer

    def stop(self) -> None:
        self.connection.close()
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


class Workers:
    """Worker processes with the data and the model in shared memory; the largest clients go first."""

    def __init__(self, site: Site, size: int, workers: int) -> None:
        self._sizes = site.declared
        needed = sum(t.numel() * t.element_size() for t in (site.x, site.y)) + 4 * size * (workers + 1)
        self._shared = SharedFolder(needed)
        x, y, vector = (self._shared.put(t) for t in (site.x, site.y, torch.zeros(size)))
        self._vector = vector.open()
        bare = replace(site, x=torch.empty(0), y=torch.empty(0))
        stations = [_Station(bare, x, y, vector, self._shared.put(torch.zeros(size))) for _ in range(workers)]
        self._workers = [_Worker(station) for station in stations]

    def run(self, order: Order) -> list[Reply]:
        self._vector.copy_(order.vector)
        waiting = sorted(order.tasks, key=lambda task: -self._sizes[task.client] * task.steps)[::-1]
        replies: dict[int, Reply] = {}
        for worker in self._workers:
            if waiting:
                worker.give(waiting.pop(), order.digest)
        while len(replies) < len(order.tasks):
            busy = {worker.connection: worker for worker in self._workers if worker.task}
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                reply = worker.take()
                replies[reply.client] = reply
                if waiting:
                    worker.give(waiting.pop(), order.digest)
        return [replies[task.client] for task in order.tasks]

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()
        self._shared.close()
