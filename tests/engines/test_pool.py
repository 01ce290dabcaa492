"""Clients in worker processes: the same replies as in this process, and a dead worker costs one of
them.
"""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import torch

from dpfl.client.context import ClientContext
from dpfl.client.dataset import ClientDatasets
from dpfl.client.task import ClientReply
from dpfl.engines import PoolEngine, SerialEngine, local_engine, pool
from dpfl.errors import DpflError
from dpfl.models import from_module
from dpfl.privacy import Keyed
from dpfl.tasks import MultiClass
from tests.engines.clients import CLASSES, FEATURES, Mortal, context, model_size, request


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolEngine]:
    before = multiprocessing.active_children()
    engine = local_engine(context(tmp_path_factory.mktemp("workers")), model_size(), workers=2)
    assert isinstance(engine, PoolEngine)
    yield engine
    engine.close()
    assert not set(multiprocessing.active_children()) - set(before)


def test_replies_come_in_the_order_of_the_tasks_and_are_the_same_on_workers(
    workers: PoolEngine, alone: SerialEngine
) -> None:
    for round, clients in enumerate(((3, 0, 2, 1), (1,), (), (0, 1, 2, 3))):
        round_request = request(*clients, round=round)
        there, here = workers.run(round_request), alone.run(round_request)
        assert (
            [reply.client for reply in there] == [reply.client for reply in here] == list(clients)
        )
        for one, other in zip(there, here, strict=True):
            assert torch.equal(one.update, other.update)
            assert one.inside == other.inside


@pytest.fixture(scope="module")
def crowd() -> Iterator[tuple[PoolEngine, SerialEngine]]:
    """Forty clients without ledgers, of whom number 23 kills its worker."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(200, FEATURES, generator=generator)
    y = torch.randint(CLASSES, (200,), generator=generator)
    x[23 * 5] = 666.0
    clients = torch.arange(200).split(5)
    data = ClientDatasets(x, y, clients, (5,) * 40)
    forty = ClientContext("run", from_module(Mortal()), MultiClass(CLASSES), data, Keyed(0))
    engines = PoolEngine(forty, model_size(), 2), SerialEngine(forty)
    yield engines
    for engine in engines:
        engine.close()


def test_workers_with_a_task_in_hand_overwrite_no_update(
    crowd: tuple[PoolEngine, SerialEngine],
) -> None:
    for round in range(3):
        there, here = (engine.run(request(*range(23), round=round)) for engine in crowd)
        assert [reply.client for reply in there] == list(range(23))
        assert all(
            torch.equal(one.update, other.update) for one, other in zip(there, here, strict=True)
        )


def test_the_task_in_hand_of_a_worker_that_dies_is_done_by_another(
    crowd: tuple[PoolEngine, SerialEngine],
) -> None:
    replies = crowd[0].run(request(*range(40)))
    assert [reply.client for reply in replies if reply.failure] == [23]
    healthy = [client for client in range(40) if client != 23]
    here = crowd[1].run(request(*healthy))
    there = [reply for reply in replies if not reply.failure]
    assert all(
        torch.equal(one.update, other.update) for one, other in zip(there, here, strict=True)
    )


def test_a_client_that_raises_costs_its_own_reply_and_its_words_stay_in_its_log(
    workers: PoolEngine, alone: SerialEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """Fault: the text of an exception, which may hold samples, was sent to the server."""
    for engine in (workers, alone):
        for round in (20, 21):
            replies = engine.run(request(0, 5, 2, round=round))
            assert [bool(reply.failure) for reply in replies] == [False, True, False]
            assert "an unlucky image" not in repr(replies)
            assert replies[1] == ClientReply(
                5, failure="it failed (ValueError), its own log says why"
            )
    assert [record.getMessage() for record in caplog.records] == [
        "Client 5 failed in round 21: ValueError: an unlucky image"
    ]


def test_a_refusal_comes_back_as_a_refusal_from_any_engine(
    workers: PoolEngine, alone: SerialEngine
) -> None:
    for engine in (workers, alone):
        replies = engine.run(
            replace(
                request(0, 1, round=30),
                tasks=(*request(0, round=30).tasks, *request(1, round=30, steps=10**6).tasks),
            )
        )
        assert replies[0].update is not None
        assert "budget" in replies[1].refusal
        assert replies[1].update is None


def test_fault_a_round_lost_because_one_worker_was_killed_at_work(
    workers: PoolEngine, alone: SerialEngine
) -> None:
    replies = workers.run(request(0, 4, 2, 1, round=40))
    assert [bool(reply.failure) for reply in replies] == [False, True, False, False]
    assert "died" in replies[1].failure
    healthy = alone.run(request(0, 2, 1, round=40))
    assert all(
        torch.equal(a.update, b.update)
        for a, b in zip([replies[0], *replies[2:]], healthy, strict=True)
    )
    again = workers.run(request(0, 1, 2, 3, round=41))
    assert not any(reply.failure for reply in again)


def test_a_worker_computes_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process: workers of tests inherit one thread, whatever they do."""
    seen: list[int] = []

    def recv() -> None:
        seen.append(torch.get_num_threads())
        raise EOFError

    setup, connection = MagicMock(slots=()), MagicMock(recv=recv)
    monkeypatch.setattr(pool, "ClientRunner", MagicMock())
    monkeypatch.setattr(pool, "replace", MagicMock())
    monkeypatch.setattr(pool, "signal", MagicMock())
    torch.set_num_threads(2)
    try:
        pool._serve(setup, connection)
    finally:
        torch.set_num_threads(1)
    assert seen == [1]


def parent(process: int | None) -> int:
    """Its parent's number, the fourth word of Linux's line on it; names may hold spaces."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def test_workers_are_forked_from_one_process_that_imports_once(
    workers: PoolEngine, tmp_path: Path
) -> None:
    workers.run(request(0, 1, round=50))
    others = local_engine(context(tmp_path), model_size(), workers=2)
    try:
        assert isinstance(others, PoolEngine)
        (server,) = {
            parent(worker._process.pid)
            for engine in (workers, others)
            for worker in engine._workers
        }
        assert server != os.getpid()
        assert not any(reply.failure for reply in others.run(request(0, 1)))
    finally:
        others.close()


def test_fault_a_run_lost_because_one_worker_was_killed_between_rounds(workers: PoolEngine) -> None:
    """The last test on these workers: it leaves one of them dead as long as the fault is there."""
    workers.run(request(0, 1, round=60))
    victim = workers._workers[0]._process
    os.kill(victim.pid, signal.SIGKILL)
    victim.join()
    replies = workers.run(request(0, 1, 2, 3, round=61))
    assert sum(bool(reply.failure) for reply in replies) <= 1
    assert not any(reply.failure for reply in workers.run(request(0, 1, 2, 3, round=62)))


@pytest.mark.parametrize("count", [0, -1])
def test_fewer_workers_than_one_are_refused(tmp_path: Path, count: int) -> None:
    with pytest.raises(DpflError, match="workers"):
        local_engine(context(tmp_path), 0, workers=count)


def test_shared_memory_goes_with_its_engine(tmp_path: Path) -> None:
    engine = PoolEngine(context(tmp_path), model_size(), workers=1)
    folder = Path(engine._shared_folder._folder.name)
    assert list(folder.iterdir())
    engine.close()
    assert not folder.exists()
