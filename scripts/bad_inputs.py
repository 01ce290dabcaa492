"""Gives bad inputs to every command and to the Python API, which must refuse each in one sentence.

    python scripts/bad_inputs.py [--every 8] [--only WORD] [--json]

A case passes if it ends within its time with an expected exit code (2 for what a user can correct),
prints a message without a traceback on the error stream, and leaves no debit without a release: no
ledger with events in the folder of a run that finished no round.
"""

# ruff: noqa: E501
from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

LONG = "x" * 5000
"""A name that is too long for a file."""

SECONDS = 30
"""The time limit of a case, which is enough for a correct answer, too."""


@dataclass(frozen=True)
class Case:
    """A command (words, in which {dir} is the case's folder) or a Python call, with its expected
    exit codes.
    """

    name: str
    call: tuple[str, ...] | Callable[[Path], object]
    codes: tuple[int, ...] = (2,)
    apart: bool = False
    """Whether the case runs in a separate process."""


@dataclass(frozen=True)
class Outcome:
    """How a case ended, and its faults."""

    case: Case
    code: int
    message: str
    seconds: float
    faults: tuple[str, ...]


class TimeLimitError(BaseException):
    """Ends a case at its time limit. It is no `Exception`, so that nothing else catches it."""


def play(case: Case, materials: Path) -> Outcome:
    """Runs a case in a new folder that holds the materials."""
    with tempfile.TemporaryDirectory(prefix="dpfl-bad-") as place:
        folder = Path(place) / "case"
        _copy(materials, folder, case)
        start = time.monotonic()
        try:
            with _time_limit(SECONDS), _inside(folder):
                code, message = _answer(case, folder)
        except TimeLimitError:
            code, message = -1, f"no answer within {SECONDS} s"
        seconds = time.monotonic() - start
        return Outcome(
            case, code, message.strip(), seconds, tuple(_faults(case, code, message, folder))
        )


def _copy(materials: Path, folder: Path, case: Case) -> None:
    """Copies the small files, and those runs that the case names."""
    names = {word.split("/")[0] for word in case.call} if isinstance(case.call, tuple) else set()
    folder.mkdir()
    for source in materials.iterdir():
        if source.is_dir() and (source / "ledger").exists() and not names & {source.name, "."}:
            continue
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / source.name)


def _answer(case: Case, folder: Path) -> tuple[int, str]:
    if callable(case.call):
        return _call(case.call, folder)
    words = [word.replace("{dir}", str(folder)) for word in case.call]
    return _command_apart(words) if case.apart else _command(words)


def _call(call: Callable[[Path], object], folder: Path) -> tuple[int, str]:
    from dpfl.errors import DpflError

    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            call(folder)
    except DpflError as error:
        return 2, str(error)
    return 0, ""


def _command(words: Sequence[str]) -> tuple[int, str]:
    from dpfl.cli import main

    out, error, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["dpfl", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        return code, error.getvalue()
    finally:
        sys.argv = before
    return 0, error.getvalue()


def _command_apart(words: Sequence[str]) -> tuple[int, str]:
    command = [sys.executable, "-c", "from dpfl.cli import main; main()", *words]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    return process.returncode, process.stderr


def _faults(case: Case, code: int, message: str, folder: Path) -> Iterator[str]:
    if code not in case.codes:
        yield f"exit code {code}, not {' or '.join(map(str, case.codes))}"
    if code and not message.strip():
        yield "no message"
    if "Traceback" in message or "internal error" in message:
        yield "a traceback"
    if (
        code == 2
        and len(message.strip().splitlines()) > 1
        and "Usage:" not in message
        and "─ Error" not in message
    ):
        yield "more than one line"
    for ledger in _debits_without_release(folder):
        yield f"a debit without a release in {ledger}"


def _debits_without_release(folder: Path) -> Iterator[str]:
    """Yields ledgers with events of new runs that finished no round."""
    for run in folder.glob("**/ledger"):
        if "ready" in run.parts or (run.parent / "checkpoint.safetensors").exists():
            continue
        for ledger in run.glob("*.sqlite"):
            with (
                contextlib.suppress(sqlite3.Error),
                contextlib.closing(sqlite3.connect(ledger)) as connection,
            ):
                if connection.execute("SELECT COUNT(*) FROM debits").fetchone()[0]:
                    yield str(ledger.relative_to(folder))


@contextlib.contextmanager
def _time_limit(seconds: int) -> Iterator[None]:
    def expire(*_: object) -> None:
        raise TimeLimitError

    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before, environment = Path.cwd(), dict(os.environ)
    os.environ |= {
        "DPFL_KEY": str(folder / "no.pem"),
        "DPFL_DATA": str(folder / "none"),
        "COLUMNS": "500",
        "NO_COLOR": "1",
    }
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(environment)


def prepare_materials(folder: Path) -> None:
    """Writes a finished run, a key, and files that are damaged in one way each."""
    import dpfl

    folder.mkdir(parents=True)
    with _inside(folder):
        x, y = np.random.default_rng(0).random((60, 5)).astype(np.float32), np.arange(60) % 3
        np.savez("own.npz", x=x, y=y, x_test=x[:12], y_test=y[:12])
        write_data(folder, x, y)
        code, message = _command(
            ("run", *small_flags(), "--set", "budget.rounds=1", "--out", "ready", "--quiet")
        )
        assert code == 0, message
        code, message = _command(("key", "new", "key.pem"))
        assert code == 0, message
        damage(folder)
    assert dpfl.__version__


def small_flags(data: str = "own.npz") -> tuple[str, ...]:
    """Returns the options of a small run."""
    settings = (
        f"data.name={data}", "data.partition=iid", "data.clients=2", "model.name=mlp", "model.hidden=4",
        "algorithm.name=fedavg-dp", "algorithm.noise_multiplier=1.0", "algorithm.sampling_rate=0.5", "budget.delta=1e-3",
    )  # fmt: skip
    return (*(word for setting in settings for word in ("--set", setting)), "--workers", "1")


def write_data(folder: Path, x: np.ndarray, y: np.ndarray) -> None:
    """Writes data sets that are wrong in one way each."""
    odd: dict[str, dict[str, Any]] = {
        "no-y": {"x": x}, "no-x": {"y": y}, "half": {"x": x, "y": y, "x_test": x}, "empty": {"x": x[:0], "y": y[:0]},
        "short": {"x": x[:5], "y": y}, "flat": {"x": x[:, 0], "y": y}, "deep-y": {"x": x, "y": np.stack([y, y], 1)},
        "nan": {"x": np.where(x > 0.99, np.nan, x), "y": y}, "inf": {"x": x * np.inf, "y": y}, "complex": {"x": x * 1j, "y": y},
        "words": {"x": np.full((60, 5), "a"), "y": y}, "dates": {"x": np.zeros((60, 5), "datetime64[s]"), "y": y},
        "nan-y": {"x": x, "y": np.where(y > 1, np.nan, y)}, "half-y": {"x": x, "y": y + 0.5}, "minus-y": {"x": x, "y": y - 1},
        "huge-y": {"x": x, "y": np.where(y > 1, 8e9, y)}, "complex-y": {"x": x, "y": y * 1j}, "words-y": {"x": x, "y": np.full(60, "a")},
        "classes": {"x": x, "y": y, "classes": np.arange(3)}, "classes-0": {"x": x, "y": y, "classes": 0},
        "classes-2": {"x": x, "y": y, "classes": 2}, "classes-huge": {"x": x, "y": y, "classes": 10**12},
        "one": {"x": x[:1], "y": y[:1]}, "two": {"x": x[:2], "y": y[:2]}, "untested": {"x": x, "y": y},
        "test-shape": {"x": x, "y": y, "x_test": x[:, :4], "y_test": y}, "test-label": {"x": x, "y": y, "x_test": x, "y_test": y * 0},
        "test-huge": {"x": x, "y": y, "x_test": x, "y_test": np.where(y > 1, 8e9, y)},
    }  # fmt: skip
    (folder / "data").mkdir()
    for name, arrays in odd.items():
        np.savez(folder / "data" / f"{name}.npz", **arrays)
    (folder / "data" / "garbage.npz").write_bytes(b"\x00garbage" * 50)
    (folder / "data" / "nothing.npz").write_bytes(b"")
    np.savez(folder / "data" / "pickled.npz", x=np.array([{}, {}], dtype=object), y=np.arange(2))


def damage(folder: Path) -> None:
    """Writes copies of the finished run, of a ledger and of an experiment, each damaged in one way."""
    ready = folder / "ready"

    def copy(name: str) -> Path:
        shutil.copytree(ready, folder / name)
        return folder / name

    for name, text in {
        "garbage": "{{",
        "list": "[1, 2]",
        "nested": "[" * 20000,
        "words": '{"accuracy": "high", "privacy": 3}',
    }.items():
        (copy(f"result-{name}") / "result.json").write_text(text)
        (copy(f"statement-{name}") / "statement.json").write_text(text)
    (copy("no-experiment") / "experiment.toml").unlink()
    (copy("no-ledgers") / "ledger" / "gone").touch()
    for ledger in (folder / "no-ledgers" / "ledger").glob("*.sqlite*"):
        ledger.unlink()
    (copy("bad-experiment") / "experiment.toml").write_text("][")
    (copy("empty-experiment") / "experiment.toml").write_text("")
    (copy("odd-experiment") / "experiment.toml").write_text(
        "experiment = 3\nresolved = 4\nrun = 5\n"
    )
    (copy("no-model") / "model.safetensors").unlink()
    (copy("bad-model") / "model.safetensors").write_bytes(b"\xff" * 100)
    (copy("bad-checkpoint") / "checkpoint.safetensors").write_bytes(b"\xff" * 100)
    (copy("bad-metrics") / "metrics.sqlite").write_bytes(b"\xff" * 100)
    (copy("no-statement") / "statement.json").unlink()
    (copy("no-result") / "result.json").unlink()
    for ledger in (copy("bad-ledger") / "ledger").glob("*.sqlite"):
        ledger.write_bytes(b"SQLite" * 30)
    for ledger in (copy("huge-ledger") / "ledger").glob("*.sqlite"):
        tamper(ledger)
    files = {
        "nested.toml": "a = " + "[" * 5000, "tables.toml": "[" + ".".join("a" * 3000) + "]\nb = 1", "half.toml": "[data", "binary.toml": "\x00\x01",
        "list.toml": "data = [1]", "word.toml": "budget = 'small'", "unknown.toml": "[dta]\nname = 'mnist'", "empty.json": "{}", "words.txt": "words",
        "cert.json": json.dumps({"certificate": {}, "signature": ""}), "certificates.json": "[" * 20000,
    }  # fmt: skip
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "latin.toml").write_bytes("name = 'é'".encode("latin-1"))
    (folder / "bad.pem").write_text(
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
    )
    (folder / "a-folder").mkdir()


def tamper(ledger: Path) -> None:
    """Sets every count in a ledger to the largest integer of SQLite."""
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(ledger)) as connection,
    ):
        for (table,) in connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table'"
        ).fetchall():
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            for column in columns:
                if column in ("count", "releases"):
                    with contextlib.suppress(sqlite3.Error):
                        connection.execute(f"UPDATE {table} SET {column} = 9223372036854775807")
        connection.commit()


def main() -> None:
    """Runs the cases of the command line and prints their outcomes."""
    from bad_input_cases import cases

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--every", type=int, default=1, help="only every n-th case")
    parser.add_argument("--only", default="", help="only cases with this in their name")
    parser.add_argument("--json", action="store_true", help="print the outcomes as JSON")
    options = parser.parse_args()
    selection = [case for case in cases() if options.only in case.name][:: options.every]
    outcomes = run(selection, show_progress=not options.json)
    failures = [outcome for outcome in outcomes if outcome.faults]
    if options.json:
        print(
            json.dumps(
                [
                    {"case": o.case.name, "code": o.code, "message": o.message, "faults": o.faults}
                    for o in outcomes
                ],
                indent=1,
            )
        )
    else:
        show(outcomes, failures)
    sys.exit(1 if failures else 0)


def run(cases: Sequence[Case], show_progress: bool = False) -> list[Outcome]:
    """Runs cases one after another, and shows the progress if asked to."""
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="dpfl-bad-") as place:
        materials = Path(place) / "materials"
        prepare_materials(materials)
        for number, case in enumerate(cases, 1):
            if show_progress:
                print(
                    f"\r{number}/{len(cases)}  {case.name[:70]:70}",
                    end="",
                    file=sys.stderr,
                    flush=True,
                )
            outcomes.append(play(case, materials))
            if show_progress and outcomes[-1].faults:
                print(
                    f"\r{case.name}: {'; '.join(outcomes[-1].faults)}: {outcomes[-1].message[-300:]}",
                    file=sys.stderr,
                )
    if show_progress:
        print(file=sys.stderr)
    return outcomes


def show(outcomes: Sequence[Outcome], failures: Sequence[Outcome]) -> None:
    """Prints a table by group, then every failure."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.case.name.split(":")[0], []).append(outcome)
    for name, group in groups.items():
        slowest = max(outcome.seconds for outcome in group)
        wrong = sum(bool(outcome.faults) for outcome in group)
        print(f"{name:14} {len(group):4} cases  {wrong:3} wrong  slowest {slowest:5.1f} s")
    for outcome in failures:
        print(f"\n{outcome.case.name}: {'; '.join(outcome.faults)}\n    {outcome.message[-600:]}")
    print(
        f"\n{len(outcomes)} cases, {len(failures)} wrong, "
        f"{sum(outcome.seconds for outcome in outcomes):.0f} s"
    )


if __name__ == "__main__":
    main()
