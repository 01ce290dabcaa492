"""How long a table will take, before it starts: the gradients that its cells need, over what this
machine makes a second.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dpfl import models
from dpfl.algorithms import from_name, options_of
from dpfl.data.catalog import SHAPES
from dpfl.planning.speed import ClientWork
from dpfl_papers.cells import Cell
from dpfl_papers.shared_prefixes import beginning

TRAINED = {"mnist-sample": 8_000, "cifar10": 50_000, "emnist-digits": 240_000, "emnist": 240_000}
"""Images to train on, where they are not the 60,000 of MNIST."""
LEAST = 32
"""Of a smaller batch the overhead of a step is as long as so many samples."""
MEASURED = 0.3
"""Seconds that a model is measured for."""

Speed = Callable[[Mapping[str, Any]], float]


def samples_of(content: Mapping[str, Any]) -> float:
    """Gradients of single samples that a run makes: rounds, clients, steps and batch as they are
    planned; tau counts as 1 where it is chosen along the way."""
    data, algorithm = content["data"], content["algorithm"]
    known = {name: option.default for name, option in options_of(algorithm["name"]).items()} | dict(
        algorithm
    )
    clients = data["clients"]
    each = data.get("images") or TRAINED.get(data["name"], 60_000) / clients
    rate = known.get("sampling_rate")
    batch = rate * each if rate else min(known.get("batch_size") or 64, each)
    cohort = known.get("cohort") or clients
    return float(content["budget"]["rounds"] * cohort * (known.get("tau") or 1) * max(batch, LEAST))


def seconds_of(
    cells: Sequence[Cell], seeds: int, missing: Callable[[Cell, int], bool], speed: Speed
) -> float:
    """For those cells and seeds that are not done, one after another; work that no model is trained
    for takes no time.
    """
    left = [
        (cell.work.content, seed) for seed in range(seeds) for cell in cells if missing(cell, seed)
    ]
    return longest(
        (content, seed, samples_of(content) / speed(content))
        for content, seed in left
        if "model" in content
    )


def longest(works: Iterable[tuple[Mapping[str, Any], int, float]]) -> float:
    """The time of works in all, each a content, a seed and how long it takes alone: of those that
    begin alike only the longest counts, and equal ones are made once."""
    found: dict[str, float] = {}
    for content, seed, seconds in works:
        key = beginning(content, seed) or json.dumps([content, seed], sort_keys=True)
        found[key] = max(found.get(key, 0.0), seconds)
    return sum(found.values())


def measured() -> Speed:
    """Samples a second of one core, on random numbers: each model once with clipped gradients, and
    once without.
    """
    found: dict[str, float] = {}

    def speed(content: Mapping[str, Any]) -> float:
        model = dict(content["model"])
        shape = SHAPES.get(content["data"]["name"], SHAPES["mnist"])
        clipped = clips_samples(content["algorithm"])
        key = repr((sorted(model.items()), shape, clipped))
        if key not in found:
            work = ClientWork(models.from_name(model.pop("name"), **model), *shape)
            found[key] = (
                of_a_core(work.samples_per_second)
                if clipped
                else of_a_core(work.plain_samples_per_second)
            )
        return found[key]

    return speed


def clips_samples(algorithm: Mapping[str, Any]) -> bool:
    """Whether gradients of single samples are clipped, which takes longer."""
    options = {name: value for name, value in algorithm.items() if name != "name"}
    return from_name(algorithm["name"], **options).samples is not None


def of_a_core(rate: Callable[[float], float]) -> float:
    """What a rate would be if nobody else used this machine."""
    wall, own = time.perf_counter(), time.process_time()
    found = rate(MEASURED)
    return found * (time.perf_counter() - wall) / max(time.process_time() - own, 1e-9)


def told(seconds: float, workers: int) -> str:
    """In words, such as "some 3 hours"."""
    each = seconds / max(workers, 1)
    amount, unit = (
        (each / 3600, "hours")
        if each > 5400
        else (each / 60, "minutes")
        if each > 90
        else (each, "seconds")
    )
    return f"some {amount:.2g} {unit}"
