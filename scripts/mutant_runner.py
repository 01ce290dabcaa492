"""Runs tests on a copy of the package that has one fault: a warm process forks a child per mutant,
which imports the copy.

The parent imports what takes long (torch, pytest, scipy) and never dpfl itself. A child puts its
copy of `src` first on the path, runs pytest within limits of processor and wall time, and ends. The
work tree is never written to.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from mutant_operators import Mutant

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "dpfl"
SLOW_IMPORTS = (
    "torch",
    "numpy",
    "scipy.stats",
    "scipy.optimize",
    "hypothesis.strategies",
    "dp_accounting",
    "dp_accounting.pld",
    "dp_accounting.rdp",
    "pydantic",
    "pyarrow.parquet",
    "safetensors.torch",
    "shamirs",
    "tomli_w",
    "cryptography.hazmat.primitives.asymmetric.ed25519",
    "cryptography.hazmat.primitives.ciphers.aead",
)
OPTIONS = [
    "-q",
    "-x",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "-p",
    "no:cov",
    "-p",
    "no:anyio",
    "--no-header",
    "--tb=line",
]


def warm() -> None:
    """Imports what every child needs, but nothing of dpfl; a missing one costs the children its
    time.
    """
    for name in SLOW_IMPORTS:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)  # threads do not survive a fork


class Slot:
    """A copy of `src`, and a place for the files of its tests, for one child at a time."""

    def __init__(self, folder: Path) -> None:
        self.src, self.basetemp = folder / "src", folder / "tmp"
        self.log, self.answer = folder / "log.txt", folder / "answer.json"
        shutil.copytree(ROOT / "src", self.src, ignore=shutil.ignore_patterns("*.egg-info"))

    def plant(self, mutant: Mutant) -> None:
        """Writes the fault into the copy; no compiled file may stand for the old text."""
        file = self.src / "dpfl" / mutant.file
        file.write_bytes(mutant.apply((PACKAGE / mutant.file).read_bytes()))
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
            compiled.unlink()

    def restore(self, mutant: Mutant) -> None:
        file = self.src / "dpfl" / mutant.file
        file.write_bytes((PACKAGE / mutant.file).read_bytes())
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
            compiled.unlink()


class _Recorder:
    """Notes the first test that failed."""

    def __init__(self) -> None:
        self.failed = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def to_dict(self) -> dict[str, Any]:
        return {"failed": self.failed}


class Tracer(_Recorder):
    """Notes for each test that passed how long it took and which functions of the package it
    entered.
    """

    def __init__(self, package: str) -> None:
        super().__init__()
        self._package, self._codes = package, set[Any]()
        self.tests: dict[str, dict[str, Any]] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._codes = set()
        add = self._codes.add

        def note(frame: FrameType, event: str, argument: object) -> None:
            if event == "call":
                add(frame.f_code)

        start = time.process_time()
        threading.setprofile(note)
        sys.setprofile(note)
        yield
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
        seconds = round(time.process_time() - start, 3)
        self.tests.setdefault(item.nodeid, {}).update(seconds=seconds, functions=self._functions())

    def _functions(self) -> list[str]:
        found = {
            code.co_filename[len(self._package) + 1 :]
            + ":"
            + code.co_qualname.replace(".<locals>", "")
            for code in self._codes
            if code.co_filename.startswith(self._package)
        }
        return sorted(found)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        super().pytest_runtest_logreport(report)
        if report.failed or report.skipped:
            self.tests.setdefault(report.nodeid, {})["left_out"] = True

    def to_dict(self) -> dict[str, Any]:
        return {
            "failed": self.failed,
            "tests": {name: test for name, test in self.tests.items() if "left_out" not in test},
        }


def _child(
    slot: Slot,
    tests: Sequence[str],
    seconds: int,
    recorder: Callable[[str], _Recorder],
    options: list[str],
) -> None:
    """Runs in the fork; never returns."""
    code = 70
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        log = os.open(slot.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(ROOT)
        sys.dont_write_bytecode = True
        os.environ |= {"PYTHONPATH": str(slot.src), "PYTHONDONTWRITEBYTECODE": "1"}
        sys.path[:0] = [str(slot.src), str(ROOT)]
        plugin = recorder(str(slot.src / "dpfl"))
        code = int(pytest.main([*options, f"--basetemp={slot.basetemp}", *tests], plugins=[plugin]))
        slot.answer.write_text(json.dumps(plugin.to_dict()))
    finally:
        sys.stdout.flush()
        os._exit(code)


@dataclass
class Job:
    """A child at work."""

    pid: int
    slot: Slot
    began: float
    seconds: int

    @classmethod
    def start(
        cls,
        slot: Slot,
        tests: Sequence[str],
        seconds: int,
        recorder: Callable[[str], _Recorder] = lambda package: _Recorder(),
        options: list[str] = OPTIONS,
    ) -> Job:
        slot.answer.unlink(missing_ok=True)
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            _child(slot, tests, seconds, recorder, options)
        return cls(pid, slot, time.monotonic(), seconds)

    def poll(self) -> tuple[int | None, float] | None:
        """Returns the exit code (None where it ran out of time) and its processor time, or None
        while it runs.

        The limit of processor time ends it; a child that only waits is ended after four times as
        long.
        """
        pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        if not pid:
            if time.monotonic() - self.began < 4 * self.seconds:
                return None
            self._end()
            _, status, usage = os.wait4(self.pid, 0)
        self._end()
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        return code, usage.ru_utime + usage.ru_stime

    def _end(self) -> None:
        """The child and what it started and left."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return

    def answer(self) -> dict[str, Any]:
        return json.loads(self.slot.answer.read_text()) if self.slot.answer.exists() else {}  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: "killed", "timeout" (killed too) or "survived"."""

    status: str
    by: str
    seconds: float
    tests: int


def run(
    mutants: Iterable[tuple[Mutant, Sequence[str]]],
    jobs: int,
    seconds: int,
    folder: Path | None = None,
) -> Iterator[tuple[Mutant, Outcome]]:
    """Plays mutants with their tests, so many at a time.

    Args:
        mutants: Each with the tests to run, the quickest first. jobs: Children at a time. seconds:
        Processor time after which a mutant counts as killed: a fault may loop for ever. folder:
        Where the copies lie; a folder for temporary files by default, in memory where there is
        room.

    Yields:
        Each mutant with its outcome, as they end.
    """
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="mutants-", dir=folder or memory) as place:
        free = [Slot(Path(place) / str(number)) for number in range(jobs)]
        waiting, working = iter(mutants), dict[int, tuple[Job, Mutant, int]]()
        over = False
        while not over or working:
            while free and not over:
                mutant, tests = next(waiting, (None, ()))
                if mutant is None:
                    over = True
                    break
                slot = free.pop()
                slot.plant(mutant)
                job = Job.start(slot, tests, seconds)
                working[job.pid] = (job, mutant, len(tests))
            for pid, (job, mutant, count) in list(working.items()):
                if (ended := job.poll()) is None:
                    continue
                del working[pid]
                job.slot.restore(mutant)
                free.append(job.slot)
                yield mutant, _outcome(job, ended, count)
            time.sleep(0.02)


def _outcome(job: Job, ended: tuple[int | None, float], tests: int) -> Outcome:
    code, seconds = ended
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        raise RuntimeError(f"No test was found:\n{job.slot.log.read_text()[-2000:]}")
    if code == pytest.ExitCode.USAGE_ERROR and _only_names_differ(job.slot.log.read_text()):
        return Outcome("survived", "tests have other names", round(seconds, 2), tests)
    status = "timeout" if code is None else "killed" if code else "survived"
    by = job.answer().get("failed") or ("" if status != "killed" else "import")
    return Outcome(status, by, round(seconds, 2), tests)


def _only_names_differ(log: str) -> bool:
    """Whether no test ran because one is not there by its name: a fault that changes names of cases
    is not noticed by that.
    """
    return "ERROR: not found:" in log and "ERROR collecting" not in log


def trace(tests: Sequence[str], seconds: int = 1800) -> dict[str, dict[str, Any]]:
    """Runs tests once without a fault.

    Returns:
        For each test that passes, its processor time and the functions of the package that it
        enters.
    """
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="mutants-", dir=memory) as place:
        options = [option for option in OPTIONS if option != "-x"]
        job = Job.start(Slot(Path(place) / "slot"), tests, seconds, Tracer, options)
        while job.poll() is None:
            time.sleep(0.1)
        if "tests" not in (answer := job.answer()):
            raise RuntimeError(f"The tests did not run:\n{job.slot.log.read_text()[-2000:]}")
        return answer["tests"]  # type: ignore[no-any-return]
