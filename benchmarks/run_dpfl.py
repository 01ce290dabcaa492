"""Whole runs of dpfl."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import dpfl
from benchmarks import run_common as common
from benchmarks.common import Clock, save_result, scratch
from dpfl.algorithms import Algorithm
from dpfl.data import Federation
from dpfl.privacy import All, Flat, Release

NEVER = 10**9


class Ticks(Clock):
    """Ticks at the end of every round."""

    def start(self, job: Any) -> None:
        """Does nothing."""

    def tell(self, row: Any) -> None:
        """Records the end of a round."""
        self.tick()

    def stop(self) -> None:
        """Does nothing."""


def train(
    model: Any,
    federation: Federation,
    algorithm: Algorithm,
    budget: dpfl.Budget,
    execution: dpfl.Execution = dpfl.Execution(),
) -> dpfl.Result:
    """Trains in a separate folder, and evaluates only at the end."""
    return dpfl.train(
        model,
        federation,
        algorithm,
        budget,
        evaluation=dpfl.Evaluation(every=NEVER),
        execution=replace(execution, out=scratch() / f"run-{uuid.uuid4().hex}"),
    )


def sample_level(rounds: int, workers: int = 1) -> Iterator[dict[str, Any]]:
    """Yields a check, then repetitions of a run of dpfl."""
    federation = common.federation()
    algorithm = dpfl.algorithms.fedavg_dp(
        tau=common.TAU, sampling_rate=common.sampling_rate(federation.sizes[0]), clip=common.CLIP,
        noise_multiplier=common.NOISE, rate=common.RATE, weights="uniform",
    )  # fmt: skip
    yield {"results": {"round without noise": _noiseless(algorithm)}}
    while True:
        clock = Ticks()
        budget = dpfl.Budget(epsilon=8.0, delta=common.DELTA, rounds=rounds)
        result = train(
            dpfl.models.cnn(),
            federation,
            algorithm,
            budget,
            execution=dpfl.Execution(workers=workers, progress=clock),
        )
        steps = result.iterations * common.CLIENTS
        yield clock.read() | {
            "steps": steps,
            "noise": common.NOISE,
            "accuracy": result.accuracy,
            "epsilon": result.privacy.proven,
        }


def _noiseless(algorithm: Algorithm) -> str:
    """Returns the change of the model in one round with all samples, clipped, and no noise."""
    exact = replace(algorithm, samples=Release(All(), Flat(common.CLIP)))
    result = train(
        dpfl.models.cnn(),
        common.small(),
        exact,
        dpfl.Budget(epsilon=None, delta=common.DELTA, rounds=1),
    )
    return change(common.initial(), result.module)


def change(before: Any, after: Any) -> str:
    """Returns the path of the difference between two models."""
    from benchmarks.step_common import flat

    return save_result(flat(after) - flat(before))
