"""Contenders in processes of their own, checked to compute the same, then measurement in turn."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
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
"""No library connects to other hosts. Processes of one machine use its loopback."""


ReferenceVectors = dict[str, tuple[str, np.ndarray]]
"""The contender that first gave a result, and its vector, by the name of the result."""


class ContenderError(Exception):
    """A contender could not run, or does not compute what the others do."""


@dataclass(frozen=True)
class Contender:
    """A generator function as "module:name", with its options and settings. The fastest setting
    counts.

    `trial` has options that make a run shorter during the choice of a setting. `warm` contenders
    make all repetitions in one process. Others start a process for each, since a run may fill
    caches. `source` is the folder of dpfl, so that two versions can be compared.
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
class Measurement:
    """The fastest setting of a contender, its check and its repetitions."""

    name: str
    setting: dict[str, Any] = field(default_factory=dict)
    check: dict[str, Any] = field(default_factory=dict)
    repetitions: list[dict[str, Any]] = field(default_factory=list)
    failure: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as results.json has them."""
        content = asdict(self)
        content["failed"] = content.pop("failure")
        return content

    def values(self, what: str = "seconds") -> list[float]:
        """Returns a figure of every repetition."""
        return [one[what] for one in self.repetitions]

    def median(self, what: str = "seconds") -> float:
        """Returns the median of a figure over repetitions."""
        return statistics.median(self.values(what))


class Process:
    """A contender in a separate process."""

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
        """Returns the next answer of the contender."""
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
            raise ContenderError(f"{self.name} {self.setting or ''}: {answer['failed']}\n{tail}")
        return answer

    def close(self) -> None:
        """Ends the process."""
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
) -> dict[str, Measurement]:
    """Checks each contender and measures it at its fastest setting, one after another in turn.

    A contender that fails stays in the result, with the reason.
    """
    with ExitStack() as stack:
        references: ReferenceVectors = {}
        choices = {one.name: _choose(one, references, stack, scratch, say) for one in contenders}
        running = {
            name: (measurement, ask)
            for name, (measurement, ask) in choices.items()
            if not measurement.failure
        }
        for repetition in range(repetitions):
            names = list(running)
            for name in names[repetition % len(names) :] + names[: repetition % len(names)]:
                measurement, ask = running[name]
                if not measurement.failure:
                    _repeat(measurement, ask, say)
    return {name: measurement for name, (measurement, _) in choices.items()}


def _repeat(measurement: Measurement, ask: Any, say: Any) -> None:
    try:
        measurement.repetitions.append(ask())
    except ContenderError as failure:
        measurement.failure = str(failure)
        say(f"  {measurement.name} failed: {failure}")


def _choose(
    contender: Contender, references: ReferenceVectors, stack: ExitStack, scratch: Path, say: Any
) -> tuple[Measurement, Any]:
    """Chooses the fastest setting that passes the check."""
    trials = []
    failures = []
    for setting in contender.settings:
        try:
            trials.append(_try(contender, setting, references, scratch))
        except ContenderError as failure:
            failures.append(str(failure))
            say(f"  {failure}")
    if not trials:
        return Measurement(contender.name, failure="; ".join(failures)), None
    best = min(trials, key=lambda one: one[0])
    for other in trials:
        if other is not best and other[2]:
            other[2].close()
    seconds, measurement, process = best
    setting_text = ", ".join(f"{key}={value}" for key, value in measurement.setting.items())
    say(
        f"  {contender.name}: ready"
        + (f" with {setting_text}" if setting_text else "")
        + (f" ({seconds:.4g} s)" if seconds else "")
    )
    if process:
        stack.callback(process.close)
        return measurement, process.ask
    return measurement, lambda: _once(contender, measurement.setting, scratch)


def _try(
    contender: Contender, setting: Mapping[str, Any], references: ReferenceVectors, scratch: Path
) -> tuple[float, Measurement, Process | None]:
    process = Process(
        replace(contender, options={**contender.options, **contender.trial}), setting, scratch
    )
    is_timed = contender.warm or len(contender.settings) > 1
    try:
        measurement = Measurement(contender.name, dict(setting), process.ask())
        _check_results(measurement, references, contender.tolerance)
        seconds = process.ask()["seconds"] if is_timed else 0.0
    except BaseException:
        process.close()
        raise
    if not contender.warm:
        process.close()
        return seconds, measurement, None
    return seconds, measurement, process


def _once(contender: Contender, setting: Mapping[str, Any], scratch: Path) -> dict[str, Any]:
    process = Process(contender, setting, scratch)
    try:
        process.ask()
        return process.ask()
    finally:
        process.close()


def _check_results(
    measurement: Measurement, references: ReferenceVectors, tolerance: float
) -> None:
    """What several contenders give under the same name must be the same vector; the first of them
    sets what is expected.
    """
    for what, path in measurement.check.pop("results", {}).items():
        vector = np.load(path).astype(np.float64)
        whose, right = references.setdefault(what, (measurement.name, vector))
        error = float(np.linalg.norm(vector - right) / np.linalg.norm(right))
        measurement.check[f"error of {what}"] = error
        if not error <= tolerance:
            raise ContenderError(
                f"{measurement.name} {measurement.setting or ''}: its {what} differs from that of "
                f"{whose} by {error:.2g}"
            )
