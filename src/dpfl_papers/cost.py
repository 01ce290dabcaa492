"""Estimates how long a table will take: the gradients that its cells need, divided by the rate at
which this machine computes them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dpfl import models
from dpfl.algorithms import from_name, options_of
from dpfl.data.published_images import SHAPES
from dpfl.planning.speed import ClientWork
from dpfl_papers.cells import Cell
from dpfl_papers.shared_prefixes import prefix_key

TRAINING_SIZES = {
    "mnist-sample": 8_000,
    "cifar10": 50_000,
    "emnist-digits": 240_000,
    "emnist": 240_000,
}
"""Images to train on, where they are not the 60,000 of MNIST."""
SMALLEST_BATCH = 32
"""Of a smaller batch the overhead of a step is as long as so many samples."""
MEASURING_SECONDS = 0.3
"""Seconds that a model is measured for."""

Speed = Callable[[Mapping[str, Any]], float]


def samples_of(content: Mapping[str, Any]) -> float:
    """Counts the gradients of single samples that a run computes.

    Args:
        content: Content of the experiment.

    Returns:
        Rounds times clients times steps times batch, as planned. tau counts as 1 if the algorithm
        chooses it during the run, and a batch as 32 at least.
    """
    data, algorithm = content["data"], content["algorithm"]
    defaults = {name: option.default for name, option in options_of(algorithm["name"]).items()}
    options = defaults | dict(algorithm)
    clients = data["clients"]
    each = data.get("images") or TRAINING_SIZES.get(data["name"], 60_000) / clients
    rate = options.get("sampling_rate")
    batch = rate * each if rate else min(options.get("batch_size") or 64, each)
    cohort = options.get("cohort") or clients
    return float(
        content["budget"]["rounds"]
        * cohort
        * (options.get("tau") or 1)
        * max(batch, SMALLEST_BATCH)
    )


def seconds_of(
    cells: Sequence[Cell], seeds: int, missing: Callable[[Cell, int], bool], speed: Speed
) -> float:
    """Estimates the time of the cells that are not finished.

    Args:
        cells: The cells of a table.
        seeds: Number of seeds, counted from 0.
        missing: Whether a cell with a seed is still to be run.
        speed: Samples per second for the content of an experiment.

    Returns:
        Seconds on one core. Work that trains no model counts as none.
    """
    missing_runs = [
        (cell.work.content, seed) for seed in range(seeds) for cell in cells if missing(cell, seed)
    ]
    return total_duration(
        (content, seed, samples_of(content) / speed(content))
        for content, seed in missing_runs
        if "model" in content
    )


def total_duration(works: Iterable[tuple[Mapping[str, Any], int, float]]) -> float:
    """Adds up the durations of runs.

    Args:
        works: Content, seed and duration of each run alone.

    Returns:
        The total, in the unit of the durations. Of runs that start alike only the longest counts,
        and equal runs count once.
    """
    longest: dict[str, float] = {}
    for content, seed, seconds in works:
        key = prefix_key(content, seed) or json.dumps([content, seed], sort_keys=True)
        longest[key] = max(longest.get(key, 0.0), seconds)
    return sum(longest.values())


def speed_meter() -> Speed:
    """Prepares a measurement of the speed of models on random numbers.

    Returns:
        A function of an experiment's content that gives samples per second on one core. It measures
        each model once with clipped gradients and once without.
    """
    rates: dict[str, float] = {}

    def speed(content: Mapping[str, Any]) -> float:
        model = dict(content["model"])
        shape = SHAPES.get(content["data"]["name"], SHAPES["mnist"])
        is_clipped = clips_samples(content["algorithm"])
        key = repr((sorted(model.items()), shape, is_clipped))
        if key not in rates:
            work = ClientWork(models.from_name(model.pop("name"), **model), *shape)
            rates[key] = (
                single_core_rate(work.samples_per_second)
                if is_clipped
                else single_core_rate(work.plain_samples_per_second)
            )
        return rates[key]

    return speed


def clips_samples(algorithm: Mapping[str, Any]) -> bool:
    """Tells whether an algorithm clips the gradients of single samples, which takes longer.

    Args:
        algorithm: Content of `[algorithm]`.

    Returns:
        True if it does.
    """
    options = {name: value for name, value in algorithm.items() if name != "name"}
    return from_name(algorithm["name"], **options).samples is not None


def single_core_rate(rate: Callable[[float], float]) -> float:
    """Estimates what a rate would be if nobody else used this machine.

    Args:
        rate: Measures a rate per second of elapsed time, for a number of seconds.

    Returns:
        The rate per second of processor time.
    """
    wall, own = time.perf_counter(), time.process_time()
    measured_rate = rate(MEASURING_SECONDS)
    return measured_rate * (time.perf_counter() - wall) / max(time.process_time() - own, 1e-9)


def duration_text(seconds: float, workers: int) -> str:
    """Words a duration.

    Args:
        seconds: Duration on one core.
        workers: Number of processes that share the work.

    Returns:
        A text such as "some 3 hours".
    """
    each = seconds / max(workers, 1)
    amount, unit = (
        (each / 3600, "hours")
        if each > 5400
        else (each / 60, "minutes")
        if each > 90
        else (each, "seconds")
    )
    return f"some {amount:.2g} {unit}"
