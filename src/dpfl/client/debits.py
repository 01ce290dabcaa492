"""Debits a client's own ledger for a release before anything of the release leaves.

A debit has two halves. `begin` checks the owner's limits inside a transaction. The function that it
returns writes the event to the disk, which may happen while the client trains.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from dpfl.client.context import ClientContext
from dpfl.client.task import ClientTask
from dpfl.errors import DpflError
from dpfl.privacy import Ledger
from dpfl.privacy.accounting.events import Event, gaussian
from dpfl.privacy.units import protects_person

OPEN_LEDGERS = 256
"""Ledgers that are open at once; a machine may have more clients."""


class ClientDebits:
    """The ledgers of the clients of one machine.

    Args:
        context: What the clients share, with their ledgers.

    Raises:
        DpflError: The ledgers are for persons and the data does not say whose each row is, or the
            other way round.
    """

    def __init__(self, context: ClientContext) -> None:
        of_persons = context.data.unit_ids is not None
        if context.ledgers and (protects_person(context.ledgers.unit)) != of_persons:
            raise DpflError(
                "Ledgers and data have different units: declare data.person if the ledgers protect "
                "persons, and only then."
            )
        self._context = context
        self._ledgers: dict[int, Ledger] = {}
        self._epochs: dict[int, int] = {}

    def ledger(self, client: int) -> Ledger:
        """Opens a client's ledger, unless it is open.

        Args:
            client: The client's number.

        Returns:
            The ledger.
        """
        if client not in self._ledgers:
            if len(self._ledgers) >= OPEN_LEDGERS:
                self._ledgers.pop(next(iter(self._ledgers))).close()
            assert self._context.ledgers is not None
            self._ledgers[client] = self._context.ledgers.open(client)
        return self._ledgers[client]

    def epoch(self, client: int) -> int:
        """Counts the runs that used a client's ledger before this one.

        Args:
            client: The client's number.

        Returns:
            The number of runs, which keys the noise of this one.
        """
        if client not in self._epochs:
            self._epochs[client] = self.ledger(client).epoch(self._context.run)
        return self._epochs[client]

    def has_unbounded_release(self, client: int) -> bool:
        """Says whether a client's ledger holds a release without a guarantee already.

        Args:
            client: The client's number.

        Returns:
            Whether raw values may be asked of the client.
        """
        return gaussian(0.0) in self.ledger(client).spending()

    def begin(self, task: ClientTask, name: str, event: Event, count: int) -> Callable[[], None]:
        """Checks the ledger's limits and enters the debit, which is not on the disk yet.

        Args:
            task: What is paid for.
            name: The name of the released value.
            event: What one release costs.
            count: How many releases there are.

        Returns:
            A function that flushes the debit to the disk. The reply waits for it.

        Raises:
            BudgetRefusal: The ledger's limits leave no room.
        """
        fresh = "" if self._context.randomness.repeatable else secrets.token_hex(16)
        ledgers = self._context.ledgers
        assert ledgers is not None
        return self.ledger(task.client).begin(
            self._context.run,
            self._entry(task, f"{name}{fresh}"),
            event,
            count,
            ledgers.limit,
            task.horizon,
            ledgers.shares,
        )

    def unused_name(self, task: ClientTask, name: str) -> str:
        """Finds a name under which nothing was paid for yet.

        Numbers for a secure sum that are made again have new noise and are paid for again. Once
        they are in two sums over different clients, the difference of the sums shows whoever is in
        one of them, with a share of the noise only.

        Args:
            task: What is paid for.
            name: The name of the released value.

        Returns:
            The name, with a number where it was used before.
        """
        ledger, repetition = self.ledger(task.client), 0
        while ledger.has_release(self._entry(task, _repetition_name(name, repetition))):
            repetition += 1
        return _repetition_name(name, repetition)

    def _entry(self, task: ClientTask, name: str) -> str:
        """Writes the ledger's name for a release. For a share of the noise it also has the terms of
        the sharing.
        """
        run = self._context.run
        return "/".join((run, task.noise_shares.mark, name) if task.noise_shares else (run, name))

    def close(self) -> None:
        """Closes every ledger."""
        for ledger in self._ledgers.values():
            ledger.close()


def _repetition_name(name: str, repetition: int) -> str:
    return f"{name}/{repetition}" if repetition else name
