"""Client-level runs of dpfl."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dpfl
from benchmarks.client_level_work import CHECK_RATE, Work, few, network, test_of, users_of
from benchmarks.run_dpfl import Ticks, change, train
from dpfl.data import Federation


def run(work: dict[str, Any], rounds: int, workers: int = 1) -> Iterator[dict[str, Any]]:
    """Yields a check, then repetitions of a run of dpfl."""
    job = Work(**work)
    users = users_of(job)
    federation = Federation.from_tensors(users, test=test_of(job))
    yield {"results": {"round without noise": _noiseless(job, users)}}
    algorithm = dpfl.algorithms.dp_fedavg(
        cohort=job.cohort, sampling="fixed-size", clip=job.clip, noise_multiplier=job.noise,
        tau=job.steps, rate=job.rate, batch_size=job.batch,
    )  # fmt: skip
    while True:
        clock = Ticks()
        budget = dpfl.Budget(epsilon=None, delta=1e-6, rounds=rounds)
        result = train(
            network(job),
            federation,
            algorithm,
            budget,
            execution=dpfl.Execution(workers=workers, progress=clock),
        )
        yield clock.read() | {
            "steps": job.cohort * job.steps * result.rounds,
            "deviation": algorithm.clients.stddev(),
            "accuracy": result.accuracy,
        }


def _noiseless(job: Work, users: list[Any]) -> str:
    """Returns the change of the model in a round of a few users without noise and dropout."""
    module = network(job, dropout=False)
    exact = dpfl.algorithms.ce_fedavg(clip=job.clip, tau=3, rate=CHECK_RATE, batch_size=job.images)
    federation = Federation.from_tensors(few(users), test=few(users)[0])
    result = train(module, federation, exact, dpfl.Budget(epsilon=None, delta=1e-6, rounds=1))
    return change(module, result.module)
