"""Row 8: the share of a run that planning, ledgers and accountants take."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import dpfl
from benchmarks import run_common as common
from benchmarks.harness import Contender
from benchmarks.report import Line, at_most, unavailable
from benchmarks.run_dpfl import Ticks, train

RUNS = (
    ("row 3's run, noise planned", 50, common.TAU),
    ("317 rounds of MNIST, tau 1, noise planned", 317, 1),
)


class Stopwatch:
    """Measures by how much a set of functions makes a run longer.

    It is the time that the main thread spends in them, waiting included. A function that another
    one of them calls counts once. Work of other threads makes the run longer only while the main
    thread waits for it, and that time is in the sum. Their processor time is separate, in `beside`:
    if every core is busy, it is an additional cost.
    """

    def __init__(self) -> None:
        self.parts: dict[str, float] = {}
        self.beside: dict[str, float] = {}
        self._here = threading.local()

    @property
    def seconds(self) -> float:
        """The time of all functions on the main thread."""
        return sum(self.parts.values())

    def clear(self) -> None:
        """Starts again at 0."""
        self.parts.clear()
        self.beside.clear()

    def time(self, owner: Any, name: str) -> None:
        """Replaces a function of a class or module by a timed one.

        Args:
            owner: The class or module.
            name: The function; a class may inherit it.
        """
        function = inspect.getattr_static(owner, name)
        if isinstance(function, classmethod):
            setattr(owner, name, classmethod(self._with_clock(function.__func__)))
        else:
            setattr(owner, name, self._with_clock(function))

    def _with_clock(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call_with_clock(*arguments: Any, **keywords: Any) -> Any:
            if getattr(self._here, "inside", False):
                return function(*arguments, **keywords)
            main = threading.current_thread() is threading.main_thread()
            clock, parts = (
                (time.perf_counter, self.parts) if main else (time.thread_time, self.beside)
            )
            self._here.inside, start = True, clock()
            try:
                return function(*arguments, **keywords)
            finally:
                self._here.inside = False
                parts[function.__qualname__] = (
                    parts.get(function.__qualname__, 0.0) + clock() - start
                )

        return call_with_clock


def watch() -> Stopwatch:
    """Times everything that plans, debits, opens or reads a ledger, or uses an accountant."""
    from dpfl.client.debits import ClientDebits
    from dpfl.client.release_names import ReleaseNames
    from dpfl.client.runner import ClientRunner
    from dpfl.privacy.accounting.accountant import Accountant
    from dpfl.privacy.ledger.ledger import Ledger
    from dpfl.run import resolve, train
    from dpfl.run.accounting import accounts, meter

    stopwatch = Stopwatch()
    for owner, names in (
        (resolve, ("with_planned_noise",)),
        (train, ("privacy_statement",)),
        (accounts.Accounts, ("remaining", "meter")),
        (meter.Meter, ("at_most",)),
        (ClientRunner, ("_await",)),
        (ClientDebits, ("begin", "unused_name", "epoch")),
        (ReleaseNames, ("name",)),
        (Ledger, ("open", "read", "close", "epoch", "spending", "remaining", "debit", "epsilon")),
        (Ledger, ("_flush",)),
        (Accountant, ("epsilon",)),
    ):
        for name in names:
            stopwatch.time(owner, name)
    return stopwatch


def share(rounds: int, tau: int) -> Iterator[dict[str, Any]]:
    """Yields runs with the time that planning, ledgers and accountants take."""
    federation = common.federation()
    stopwatch = watch()
    algorithm = dpfl.algorithms.fedavg_dp(
        tau=tau,
        sampling_rate=common.sampling_rate(federation.sizes[0]),
        clip=common.CLIP,
        rate=common.RATE,
    )
    yield {}
    while True:
        clock = Ticks()
        stopwatch.clear()
        budget = dpfl.Budget(epsilon=2.0, delta=common.DELTA, rounds=rounds)
        result = train(
            dpfl.models.cnn(),
            federation,
            algorithm,
            budget,
            execution=dpfl.Execution(progress=clock),
        )
        read = clock.read()
        yield read | {
            "accounting": stopwatch.seconds,
            "parts": dict(stopwatch.parts),
            "beside": sum(stopwatch.beside.values()),
            "percent": 100 * stopwatch.seconds / read["seconds"],
            "epsilon": result.privacy.proven,
            "accuracy": result.accuracy,
        }


def run(bench) -> list[Line]:
    """Measures row 8."""
    lines = []
    for title, rounds, tau in RUNS:
        bench.say(f"accounting and ledgers, {title}")
        rounds = rounds // 5 if bench.quick else rounds
        contender = Contender(title, "benchmarks.accounting:share", {"rounds": rounds, "tau": tau})
        measurement = bench.compare([contender])[title]
        bench.keep(f"accounting, {title}", {title: measurement})
        if measurement.failure:
            lines.append(unavailable(8, title, "accounting / run", measurement.failure))
            continue
        parts = sorted(measurement.repetitions[0]["parts"].items(), key=lambda part: -part[1])[:3]
        most = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in parts)
        sums = f"{measurement.median('accounting'):.2f} s of {measurement.median('seconds'):.1f} s"
        note = (
            f"{sums}: {most}; beside it {measurement.median('beside'):.2f} s of the ledger's thread"
        )
        lines.append(
            Line.of(
                8, title, "accounting / run", measurement.values("percent"), at_most(2), " %", note
            )
        )
    return lines
