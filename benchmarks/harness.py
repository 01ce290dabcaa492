"""Contenders in processes of their own, checked to compute the same, then measured in turn."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "JAX_PLATFORMS": "cpu",
    "GLOO_SOCKET_IFNAME": "lo",
}
"""Nothing here calls out, and two processes of one machine talk over its loopback."""


Expected = dict[str, tuple[str, np.ndarray]]
"""What was computed, by whom, and the vector."""


class Failed(Exception):
    """A contender that could not run, or did not compute what the others do."""


@dataclass(frozen=True)
class Contender:
    """A generator function as "module:name", its options, and the settings of which the fastest is
    taken.

    `trial` holds options that make a run shorter while settings are tried. `warm` contenders make
    all repetitions in one process; others start anew for each, since a run may leave caches behind.
    `source` is the folder that dpfl is imported from: another checkout's, to compare two versions.
    """

    name: str
    target: str
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Sequence[Mapping[str, Any]] = ({},)
    warm: bool = False
    tolerance: float = 1e-4
    trial: Mapping[str, Any] = field(default_factory=dict)
    source: Path = ROOT / "src"


@dataclass
class Measured:
    """What a contender answered: the setting that was fastest here, its check, and its
    repetitions.
    """

    name: str
    setting: dict[str, Any] = field(default_factory=dict)
    check: dict[str, Any] = field(default_factory=dict)
    repetitions: list[dict[str, Any]] = field(default_factory=list)
    failed: str = ""

    def values(self, what: str = "seconds") -> list[float]:
        return [one[what] for one in self.repetitions]

    def median(self, what: str = "seconds") -> float:
        return statistics.median(self.values(what))


class Process:
    """A contender that answers when asked."""

    def __init__(self, contender: Contender, setting: Mapping[str, Any], scratch: Path) -> None:
        self.name, self.setting = contender.name, dict(setting)
        options = {**contender.options, **setting}
        threads = str(options.get("threads", 1))
        self._log = (
            scratch
            / f"{contender.name.replace(' ', '-').replace('/', '-')}-{time.monotonic_ns()}.log"
        ).open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", contender.target, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=ROOT,
            env=os.environ
            | QUIET
            | {
                "PYTHONPATH": f"{ROOT}{os.pathsep}{contender.source}",
                "BENCH_SCRATCH": str(scratch),
                "FLWR_HOME": str(scratch / "flwr"),
                "OMP_NUM_THREADS": threads,
                "MKL_NUM_THREADS": threads,
            },
        )

    def ask(self) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        try:
            self._process.stdin.write("next\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        answer = (
            json.loads(line)
            if line
            else {"failed": f"its process ended with {self._process.wait()}"}
        )
        if "failed" in answer:
            self._log.seek(0)
            tail = "".join(self._log.readlines()[-15:])
            raise Failed(f"{self.name} {self.setting or ''}: {answer['failed']}\n{tail}")
        return answer

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()


def compare(
    contenders: Sequence[Contender], repetitions: int, scratch: Path, say: Any = print
) -> dict[str, Measured]:
    """Each contender at its fastest setting, checked, and measured in turn; one that fails is kept
    with its reason.
    """
    with ExitStack() as stack:
        expected: Expected = {}
        found = {one.name: _choose(one, expected, stack, scratch, say) for one in contenders}
        running = {
            name: (measured, ask) for name, (measured, ask) in found.items() if not measured.failed
        }
        for repetition in range(repetitions):
            names = list(running)
            for name in names[repetition % len(names) :] + names[: repetition % len(names)]:
                measured, ask = running[name]
                if not measured.failed:
                    _repeat(measured, ask, say)
    return {name: measured for name, (measured, _) in found.items()}


def _repeat(measured: Measured, ask: Any, say: Any) -> None:
    try:
        measured.repetitions.append(ask())
    except Failed as failure:
        measured.failed = str(failure)
        say(f"  {measured.name} failed: {failure}")


def _choose(
    contender: Contender, expected: Expected, stack: ExitStack, scratch: Path, say: Any
) -> tuple[Measured, Any]:
    """The fastest of the settings that compute what they should; with one setting there is nothing
    to choose.
    """
    tried = []
    failures = []
    for setting in contender.settings:
        try:
            tried.append(_try(contender, setting, expected, scratch))
        except Failed as failure:
            failures.append(str(failure))
            say(f"  {failure}")
    if not tried:
        return Measured(contender.name, failed="; ".join(failures)), None
    best = min(tried, key=lambda one: one[0])
    for other in tried:
        if other is not best and other[2]:
            other[2].close()
    seconds, measured, process = best
    shown = ", ".join(f"{key}={value}" for key, value in measured.setting.items())
    say(
        f"  {contender.name}: ready"
        + (f" with {shown}" if shown else "")
        + (f" ({seconds:.4g} s)" if seconds else "")
    )
    if process:
        stack.callback(process.close)
        return measured, process.ask
    return measured, lambda: _once(contender, measured.setting, scratch)


def _try(
    contender: Contender, setting: Mapping[str, Any], expected: Expected, scratch: Path
) -> tuple[float, Measured, Process | None]:
    process = Process(
        replace(contender, options={**contender.options, **contender.trial}), setting, scratch
    )
    timed = contender.warm or len(contender.settings) > 1
    try:
        measured = Measured(contender.name, dict(setting), process.ask())
        _check_results(measured, expected, contender.tolerance)
        seconds = process.ask()["seconds"] if timed else 0.0
    except BaseException:
        process.close()
        raise
    if not contender.warm:
        process.close()
        return seconds, measured, None
    return seconds, measured, process


def _once(contender: Contender, setting: Mapping[str, Any], scratch: Path) -> dict[str, Any]:
    process = Process(contender, setting, scratch)
    try:
        process.ask()
        return process.ask()
    finally:
        process.close()


def _check_results(measured: Measured, expected: Expected, tolerance: float) -> None:
    """What several contenders give under the same name must be the same vector; the first of them
    sets what is expected.
    """
    for what, path in measured.check.pop("results", {}).items():
        vector = np.load(path).astype(np.float64)
        whose, right = expected.setdefault(what, (measured.name, vector))
        error = float(np.linalg.norm(vector - right) / np.linalg.norm(right))
        measured.check[f"error of {what}"] = error
        if not error <= tolerance:
            raise Failed(
                f"{measured.name} {measured.setting or ''}: its {what} differs from that of "
                f"{whose} by {error:.2g}"
            )
