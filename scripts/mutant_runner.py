"""Runs tests on a copy of the package with one fault: a process forks a child per mutant, and the
child imports the copy.

The parent imports what takes long (torch, pytest, scipy) but never dpfl itself. A child puts its
copy of `src` first on the path, runs pytest within limits of processor and wall time, and ends.
Nothing writes to the work tree.
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
    """Imports what every child needs, except dpfl. A child imports what is missing here itself."""
    for name in SLOW_IMPORTS:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)  # threads do not survive a fork


class Slot:
    """A copy of `src` and a folder for the files of its tests, for one child at a time."""

    def __init__(self, folder: Path) -> None:
        self.src, self.basetemp = folder / "src", folder / "tmp"
        self.log, self.answer = folder / "log.txt", folder / "answer.json"
        shutil.copytree(ROOT / "src", self.src, ignore=shutil.ignore_patterns("*.egg-info"))

    def plant(self, mutant: Mutant) -> None:
        """Writes the fault into the copy, and removes the bytecode of the old text."""
        file = self.src / "dpfl" / mutant.file
        file.write_bytes(mutant.apply((PACKAGE / mutant.file).read_bytes()))
        for bytecode_file in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
            bytecode_file.unlink()

    def restore(self, mutant: Mutant) -> None:
        """Writes the original text into the copy."""
        file = self.src / "dpfl" / mutant.file
        file.write_bytes((PACKAGE / mutant.file).read_bytes())
        for bytecode_file in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
            bytecode_file.unlink()


class _Recorder:
    """Records the first test that failed."""

    def __init__(self) -> None:
        self.failure = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failure:
            self.failure = report.nodeid

    def to_dict(self) -> dict[str, Any]:
        return {"failed": self.failure}


class Tracer(_Recorder):
    """Records the time of each test that passed, and the functions of the package that it
    entered.
    """

    def __init__(self, package: str) -> None:
        super().__init__()
        self._package, self._codes = package, set[Any]()
        self.tests: dict[str, dict[str, Any]] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Records the functions that a test enters, and its time."""
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
        names = {
            code.co_filename[len(self._package) + 1 :]
            + ":"
            + code.co_qualname.replace(".<locals>", "")
            for code in self._codes
            if code.co_filename.startswith(self._package)
        }
        return sorted(names)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Leaves out tests that fail or are skipped."""
        super().pytest_runtest_logreport(report)
        if report.failed or report.skipped:
            self.tests.setdefault(report.nodeid, {})["left_out"] = True

    def to_dict(self) -> dict[str, Any]:
        """Returns the first failure and the tests that passed."""
        return {
            "failed": self.failure,
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
    """A child that runs tests."""

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
        """Forks a child that runs the tests."""
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
        """Ends the child and the processes that it started."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return

    def answer(self) -> dict[str, Any]:
        """Returns what the child recorded."""
        return json.loads(self.slot.answer.read_text()) if self.slot.answer.exists() else {}  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Outcome:
    """The status of a mutant: "killed", "timeout" (which counts as killed) or "survived"."""

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
    """Runs the tests of mutants, some of them at a time.

    Args:
        mutants: Each with the tests to run, the quickest first.
        jobs: The number of children at a time.
        seconds: Processor time after which a mutant counts as killed: a fault may loop for ever.
        folder: Where the copies lie. By default a temporary folder, in memory if possible.

    Yields:
        Each mutant with its outcome, as they end.
    """
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="mutants-", dir=folder or memory) as place:
        free = [Slot(Path(place) / str(number)) for number in range(jobs)]
        waiting, working = iter(mutants), dict[int, tuple[Job, Mutant, int]]()
        exhausted: bool = False
        while not exhausted or working:
            while free and not exhausted:
                mutant, tests = next(waiting, (None, ()))
                if mutant is None:
                    exhausted = True
                    break
                slot = free.pop()
                slot.plant(mutant)
                job = Job.start(slot, tests, seconds)
                working[job.pid] = (job, mutant, len(tests))
            for pid, (job, mutant, count) in list(working.items()):
                if (end := job.poll()) is None:
                    continue
                del working[pid]
                job.slot.restore(mutant)
                free.append(job.slot)
                yield mutant, _outcome(job, end, count)
            time.sleep(0.02)


def _outcome(job: Job, end: tuple[int | None, float], tests: int) -> Outcome:
    code, seconds = end
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        raise RuntimeError(f"No test was found:\n{job.slot.log.read_text()[-2000:]}")
    if code == pytest.ExitCode.USAGE_ERROR and _only_names_differ(job.slot.log.read_text()):
        return Outcome("survived", "tests have other names", round(seconds, 2), tests)
    status = "timeout" if code is None else "killed" if code else "survived"
    by = job.answer().get("failed") or ("" if status != "killed" else "import")
    return Outcome(status, by, round(seconds, 2), tests)


def _only_names_differ(log: str) -> bool:
    """Tells whether no test ran because a name is missing.

    A fault that changes the names of parametrised tests has not been noticed by that.
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
