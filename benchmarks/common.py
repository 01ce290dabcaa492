"""What contenders share: files of results to compare, and the clock of a repetition."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np


def scratch() -> Path:
    """Returns the folder for temporary files."""
    return Path(os.environ["BENCH_SCRATCH"])


def save_result(vector: Any) -> str:
    """Writes a vector for the harness to compare, and returns its path."""
    path = scratch() / f"{uuid.uuid4().hex}.npy"
    np.save(path, np.asarray(vector, dtype=np.float32).reshape(-1))
    return str(path)


def repeat(
    run: Callable[[int], None], seconds: float, steps: int | None = None
) -> Iterator[dict[str, Any]]:
    """Yields repetitions of about `seconds`, or of a number of steps.

    Each has the seconds of a step, by the clock and of the processor.
    """
    run(1)
    count = steps or max(1, round(seconds / _seconds_of(run, 1)[0]))
    while True:
        wall_time, processor = _seconds_of(run, count)
        yield {"seconds": wall_time / count, "processor": processor / count, "steps": count}


def _seconds_of(run: Callable[[int], None], count: int) -> tuple[float, float]:
    start, busy = time.perf_counter(), time.process_time()
    run(count)
    return time.perf_counter() - start, time.process_time() - busy


class Clock:
    """The times at which rounds ended."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._ends: list[float] = []

    def tick(self) -> None:
        """Records the end of a round."""
        self._ends.append(time.perf_counter())

    def read(self) -> dict[str, Any]:
        """Returns the times of the whole run, up to the end of the first round, and of a later
        round.
        """
        total = time.perf_counter() - self._start
        later = len(self._ends) - 1
        mean = (self._ends[-1] - self._ends[0]) / later if later else self._ends[0] - self._start
        return {
            "seconds": total,
            "first": self._ends[0] - self._start,
            "round": mean,
            "rounds": len(self._ends),
        }
