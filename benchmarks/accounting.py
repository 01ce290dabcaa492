"""Row 8: how much of a run goes into planning, ledgers and accountants."""

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
    """By how much a set of functions makes a run longer: the time that its main thread is inside
    one of them, waiting included; one called by another of them counts once.

    What another thread does meanwhile makes the run longer only where the main thread waits for it,
    and that wait is in the sum. Its processor time is kept apart, in `beside`: where every core is
    busy it comes on top.
    """

    def __init__(self) -> None:
        self.parts: dict[str, float] = {}
        self.beside: dict[str, float] = {}
        self._here = threading.local()

    @property
    def seconds(self) -> float:
        return sum(self.parts.values())

    def clear(self) -> None:
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
            setattr(owner, name, classmethod(self._timed(function.__func__)))
        else:
            setattr(owner, name, self._timed(function))

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def timed(*arguments: Any, **named: Any) -> Any:
            if getattr(self._here, "inside", False):
                return function(*arguments, **named)
            main = threading.current_thread() is threading.main_thread()
            clock, parts = (
                (time.perf_counter, self.parts) if main else (time.thread_time, self.beside)
            )
            self._here.inside, start = True, clock()
            try:
                return function(*arguments, **named)
            finally:
                self._here.inside = False
                parts[function.__qualname__] = (
                    parts.get(function.__qualname__, 0.0) + clock() - start
                )

        return timed


def watch() -> Stopwatch:
    """Everything that plans, debits, opens or reads a ledger, or asks an accountant."""
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
    lines = []
    for title, rounds, tau in RUNS:
        bench.say(f"accounting and ledgers, {title}")
        rounds = rounds // 5 if bench.quick else rounds
        contender = Contender(title, "benchmarks.accounting:share", {"rounds": rounds, "tau": tau})
        found = bench.compare([contender])[title]
        bench.keep(f"accounting, {title}", {title: found})
        if found.failed:
            lines.append(unavailable(8, title, "accounting / run", found.failed))
            continue
        parts = sorted(found.repetitions[0]["parts"].items(), key=lambda part: -part[1])[:3]
        most = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in parts)
        sums = f"{found.median('accounting'):.2f} s of {found.median('seconds'):.1f} s"
        note = f"{sums}: {most}; beside it {found.median('beside'):.2f} s of the ledger's thread"
        lines.append(
            Line.of(8, title, "accounting / run", found.values("percent"), at_most(2), " %", note)
        )
    return lines
