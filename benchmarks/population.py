"""Row 7: the same cohort and the same work out of a thousand clients, and out of a million."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import dpfl
from benchmarks import datasets
from benchmarks.harness import Contender
from benchmarks.report import Line, at_most, unavailable
from benchmarks.run_dpfl import Ticks, train

SMALL, LARGE = 1_000, 1_000_000
WORK = "client-level mlp, 50 clients a round"


def population(clients: int, rounds: int) -> Iterator[dict[str, Any]]:
    """Yields runs with a cohort out of a number of clients."""
    source = datasets.mnist()
    _forget_peak()
    federation = source.split(clients=clients, how=dpfl.data.RandomClients(images=100), seed=0)
    algorithm = dpfl.algorithms.dp_fedavg(
        cohort=50,
        sampling="fixed-size",
        clip=1.0,
        noise_multiplier=1.0,
        tau=10,
        rate=0.1,
        batch_size=20,
    )
    yield {}
    while True:
        clock = Ticks()
        budget = dpfl.Budget(epsilon=None, delta=1e-7, rounds=rounds)
        result = train(
            dpfl.models.mlp(),
            federation,
            algorithm,
            budget,
            execution=dpfl.Execution(progress=clock),
        )
        yield clock.read() | {"megabytes": _peak(), "accuracy": result.accuracy}


def _forget_peak() -> None:
    """Resets the peak of memory, where Linux allows it: reading the images takes more than holding
    them.
    """
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> float:
    """Returns the peak of the memory of the process, in MB."""
    with suppress(OSError):
        line = next(
            line
            for line in Path("/proc/self/status").read_text().splitlines()
            if line.startswith("VmHWM")
        )
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run(bench) -> list[Line]:
    """Measures row 7."""
    bench.say(WORK)
    rounds = 5 if bench.quick else 20
    sizes = {"a thousand": SMALL, "a million": LARGE}
    options = {name: {"clients": clients, "rounds": rounds} for name, clients in sizes.items()}
    measurements = bench.compare(
        [Contender(name, "benchmarks.population:population", one) for name, one in options.items()]
    )
    bench.keep(WORK, measurements)
    small, large = measurements["a thousand"], measurements["a million"]
    if small.failure or large.failure:
        return [unavailable(7, WORK, "10^6 / 10^3 clients", small.failure or large.failure)]
    more = [
        b - a for a, b in zip(small.values("megabytes"), large.values("megabytes"), strict=False)
    ]
    note = f"{large.median('megabytes'):.0f} MB / {small.median('megabytes'):.0f} MB at the peak"
    return [
        Line.ratio(
            7, f"{WORK}: a round", "10^6 / 10^3 clients", large, small, at_most(1.2), of="round"
        ),
        Line.ratio(
            7, f"{WORK}: {rounds} rounds with start", "10^6 / 10^3 clients", large, small, None
        ),
        Line.of(7, f"{WORK}: peak memory", "10^6 - 10^3 clients", more, at_most(500), " MB", note),
    ]
