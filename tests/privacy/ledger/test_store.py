"""Several processes that debit one ledger, and processes that die."""

import multiprocessing
import random
import time

from dpfl.privacy import Ledger, accountant, affordable
from tests.conftest import PATIENCE, wait_until
from tests.privacy.exact import poisson
from tests.privacy.ledger.files import start
from tests.privacy.workers import (
    EVENT,
    LIMIT,
    debit_for_ever,
    debit_until_refused,
    open_ledger,
)

DELTA = 1e-5
OTHER = poisson(0.1, 3.0)
ROOM = affordable({}, EVENT, LIMIT.epsilon, LIMIT.delta, accountant(LIMIT.accountant))


def test_processes_that_debit_one_ledger_at_once_stay_inside_the_limit_together(path):
    open_ledger(path, limit=LIMIT).close()
    context = multiprocessing.get_context("fork")
    together = context.Barrier(2)
    workers = [
        start(context, debit_until_refused, path, f"run {number}", together) for number in range(2)
    ]
    for process, _ in workers:
        process.join(PATIENCE)
        assert process.exitcode == 0
    won = [receiver.recv() for _, receiver in workers]
    assert sum(won) == ROOM
    assert Ledger.read(path).spending() == {EVENT: ROOM}


def test_every_debit_that_returned_is_in_the_ledger_after_a_kill_at_any_moment(tmp_path):
    context = multiprocessing.get_context("fork")
    moments = random.Random(0)
    for attempt in range(10):
        path, log = tmp_path / f"{attempt}.sqlite", tmp_path / f"{attempt}.log"
        process = context.Process(target=debit_for_ever, args=(path, log), daemon=True)
        process.start()
        wait_until(lambda: log.exists() and log.stat().st_size)  # noqa: B023
        time.sleep(moments.uniform(0, 0.2))
        process.kill()
        process.join(PATIENCE)
        returned = sum(int(line) for line in log.read_text().split())
        ledger = Ledger.existing(path)
        assert returned > 0
        assert returned <= sum(ledger.spending().values()) <= returned + 3
        ledger.debit("run", "after the crash", EVENT, 1)
        ledger.close()
