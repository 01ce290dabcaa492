"""The engine that trains clients one after another in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from dpfl.client.context import ClientContext
from dpfl.client.runner import ClientRunner
from dpfl.client.task import ClientReply, ClientTask, RoundRequest


@contextmanager
def one_thread() -> Iterator[None]:
    """Runs torch on one thread.

    The last bits of a sum depend on the number of threads that compute it. Clients train on one
    thread on every engine, so that every engine computes the same sums.

    Yields:
        Nothing. The former number of threads is restored on exit.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class SerialEngine:
    """Trains clients in this process. Implements `dpfl.engines.Engine`."""

    def __init__(self, context: ClientContext) -> None:
        self._runner = ClientRunner(context)
        self._updates = torch.empty(0, self._runner.model.layout.size)

    def run(self, request: RoundRequest) -> list[ClientReply]:
        """Executes one round.

        Args:
            request: The tasks of the round and the model that they start from.

        Returns:
            One reply per task, in the order of the tasks. Their updates are valid until the next
            call.
        """
        self._updates = room_for(self._updates, len(request.tasks))
        with one_thread():
            return [
                self._reply(request, task, row)
                for task, row in zip(request.tasks, self._updates, strict=False)
            ]

    def _reply(self, request: RoundRequest, task: ClientTask, row: Tensor) -> ClientReply:
        reply = self._runner.reply(task, request.vector, request.corrections.get(task.client))
        return reply if reply.update is None else replace(reply, update=row.copy_(reply.update))

    def close(self) -> None:
        """Closes the clients' ledgers."""
        self._runner.close()


def room_for(updates: Tensor, clients: int) -> Tensor:
    """Provides memory for the updates of a round, reusing that of the last one.

    Args:
        updates: The memory of the last round, one row per client.
        clients: How many rows this round needs.

    Returns:
        `updates` itself if it has enough rows, because memory that was used before costs less than
        new pages; otherwise new memory.
    """
    return updates if len(updates) >= clients else torch.empty(clients, updates.shape[1])
