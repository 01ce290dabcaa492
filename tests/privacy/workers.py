"""What other processes do to a ledger in test_ledger.py."""

from __future__ import annotations

import os
import resource
import signal
import time
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

import dp_accounting as dp

from dpfl.errors import DpflError
from dpfl.privacy.accounting.events import ADD_REMOVE
from dpfl.privacy.ledger.ledger import BudgetRefusal, Ledger, Limit
from tests.conftest import PATIENCE

EVENT = dp.PoissonSampledDpEvent(0.05, dp.GaussianDpEvent(1.5))
LIMIT = Limit(3.0, 1e-5, "rdp")


def open_ledger(
    path: Path, owner: str = "owner", unit: str = "sample", limit: Limit | None = None
) -> Ledger:
    return Ledger.open(path, owner, unit, ADD_REMOVE, limit)


def debit_until_refused(path: Path, name: str, together: Barrier, answers: Connection) -> None:
    """Opens the ledger at the same moment as the others, then debits 7 at a time, then one by
    one.
    """
    together.wait(PATIENCE)
    ledger = open_ledger(path, limit=LIMIT)
    together.wait(PATIENCE)
    won, count, number = 0, 7, 0
    while count:
        number += 1
        try:
            ledger.debit(name, f"{name}/{number}", EVENT, count)
            won += count
            time.sleep(0.001)  # lets the others in
        except BudgetRefusal:
            count = 1 if count == 7 else 0
    answers.send(won)
    ledger.close()


def debit_for_ever(path: Path, log: Path) -> None:
    """Appends a line to the log after each debit has returned."""
    ledger = open_ledger(path, limit=Limit(1e4, 1e-5, "rdp"))
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    number = 0
    while True:
        number += 1
        ledger.debit("run", f"run/{number}", EVENT, 3)
        os.write(file, b"3\n")


def debit_until_the_disk_is_full(path: Path, limit: int, answers: Connection) -> None:
    """No file of this process can grow beyond `limit` bytes."""
    ledger = open_ledger(path)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    won, errors = 0, []
    for number in range(2000):
        try:
            ledger.debit("run", f"full/{number}", EVENT, 1)
            won += 1
        except DpflError as error:
            errors.append(str(error))
            if len(errors) == 3:
                break
    answers.send((won, errors, sum(ledger.spending().values())))
    os._exit(0)  # as in a crash: no checkpoint of the write-ahead log on closing
