"""Runs as processes: started as in a terminal, and paused, stopped and resumed by signals.

A run that a page starts is a process of its own, which continues when the page is closed. A run
that a terminal started can be stopped here too, since a run records its process.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from dpfl.errors import DpflError
from dpfl.run.records.folder import RunFolder, write_atomically
from dpfl.web.run_index import RunIndex
from dpfl.web.run_line import state_of

STARTING = ".starting"
"""The folder, within that of the runs, of the experiments that were started here and the output of
their processes.
"""
MOST = 8
"""Processes that may run at once. Each takes a core or more."""
LAST = 4000
PATIENCE, LEAVING = 3.0, 60.0
"""Seconds to wait for the earlier process of a name, and for one that was stopped from here."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")

PROGRAM = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from dpfl.cli "
    "import main; main()"
)
"""Restores Ctrl-C, which a process does not have if the pages were started in the background."""


def _wait(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Waits for a process to end. It releases its run before it ends, which can take seconds."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _send(process: int, *signals: signal.Signals) -> None:
    try:
        for signal_number in signals:
            os.kill(process, signal_number)
    except ProcessLookupError:
        return  # it has ended meanwhile
    except OSError as error:
        raise DpflError(
            f"The process {process} of this run cannot be reached ({error.strerror}); it may "
            "belong to another user."
        ) from None


class RunControl:
    """Starts, pauses, stops and resumes the runs of a folder."""

    def __init__(self, index: RunIndex) -> None:
        """Takes control of a folder of runs.

        Args:
            index: The folder.
        """
        self._index, self._lock = index, threading.Lock()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._stopped_processes: set[int] = set()
        """The numbers of processes that were told to stop."""

    def start(self, name: str, experiment: Mapping[str, Any]) -> None:
        """Starts a run in a process of its own.

        Args:
            name: The name of the new run.
            experiment: The content of its experiment file.

        Raises:
            DpflError: If the name cannot be used, or too many runs are in progress.
        """
        out, notes = self.check_name(name), self._index.root / STARTING
        file, text = notes / f"{name}.toml", tomli_w.dumps(dict(experiment))
        self._run(
            name,
            "run",
            str(file),
            "--out",
            str(out),
            "--quiet",
            before=lambda: write_atomically(file, text.encode()),
        )

    def check_name(self, name: str) -> Path:
        """Checks the name of a new run.

        Args:
            name: The name.

        Returns:
            The folder that the run would have.

        Raises:
            DpflError: If the name cannot be used.
        """
        if not NAME.fullmatch(name):
            raise DpflError(
                "A name consists of at most 80 letters, digits, dots, dashes and underscores, and "
                "begins with a letter or digit."
            )
        return self._index.free(name)

    def resume(self, name: str) -> None:
        """Continues a paused run, or resumes a stopped one after its last finished round.

        Args:
            name: The name of the run.

        Raises:
            DpflError: If the run has ended, or must be resumed elsewhere.
        """
        folder = self._index.open(name)
        if (process := folder.process()) is not None:
            _send(process, signal.SIGCONT)
            return
        if state_of(folder) == "finished":
            raise DpflError(f"The run {name!r} has ended, so there is nothing to resume.")
        if folder.experiment().get("experiment", {}).get("server", {}).get("nodes"):
            raise DpflError(
                f"Resume a run over nodes where its keys are: dpfl server --resume {folder.path}"
            )
        self._run(name, "run", "--resume", str(folder.path), "--quiet")

    def pause(self, name: str) -> None:
        """Pauses the process of a run. Its clients finish their task and wait.

        Args:
            name: The name of the run.

        Raises:
            DpflError: If no process is running it.
        """
        _send(self._at(self._index.open(name), name), signal.SIGSTOP)

    def stop(self, name: str) -> None:
        """Stops a run like Ctrl-C in its terminal. Resuming repeats the round in progress.

        Args:
            name: The name of the run.

        Raises:
            DpflError: If no process is running it.
        """
        process = self._at(self._index.open(name), name)
        _send(process, signal.SIGINT, signal.SIGCONT)
        self._stopped_processes.add(process)

    def failures(self) -> dict[str, str]:
        """Lists runs that were started here and failed.

        Returns:
            The last error message by name.
        """
        with self._lock:
            exit_codes = {
                name: process.returncode
                for name, process in self._processes.items()
                if process.poll() is not None
            }
        codes = {name: code for name, code in exit_codes.items() if code not in (0, 130)}
        return {name: self._last_message(name) for name in codes}

    def starting(self) -> list[str]:
        """Lists runs that have a process and no folder yet.

        Returns:
            Their names.
        """
        with self._lock:
            under_way = [
                name for name, process in self._processes.items() if process.poll() is None
            ]
        return [name for name in under_way if not RunFolder(self._index.root / name).begun()]

    def is_starting(self, name: str) -> bool:
        """Tells whether a process that was started here may not have begun the run yet.

        Args:
            name: The name of the run.

        Returns:
            Whether such a process is alive.
        """
        with self._lock:
            process = self._processes.get(name)
            return process is not None and process.poll() is None

    def _run(self, name: str, *words: str, before: Callable[[], None] = lambda: None) -> None:
        """Starts a process, after `before`.

        No other process of this name is alive then. One could still read its experiment, which
        `before` writes.
        """
        with self._lock:
            if sum(process.poll() is None for process in self._processes.values()) >= MOST:
                raise DpflError(f"{MOST} runs are in progress. Wait for one of them, or stop one.")
            earlier = self._processes.get(name)
            if earlier and not _wait(
                earlier, LEAVING if earlier.pid in self._stopped_processes else PATIENCE
            ):
                raise DpflError(f"The run {name!r} is already being started.")
            (self._index.root / STARTING).mkdir(parents=True, exist_ok=True)
            before()
            with self._log(name).open("wb") as file:
                self._processes[name] = subprocess.Popen(
                    [sys.executable, "-c", PROGRAM, *words],
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            self._stopped_processes.discard(self._processes[name].pid)

    def _at(self, folder: RunFolder, name: str) -> int:
        process = folder.process()
        if process is None:
            raise DpflError(f"No process is running {name!r}.")
        return process

    def _log(self, name: str) -> Path:
        return self._index.root / STARTING / f"{name.replace('/', '.')}.log"

    def _last_message(self, name: str) -> str:
        try:
            text = self._log(name).read_bytes()[-LAST:].decode(errors="replace")
        except OSError:
            text = ""
        lines = [
            line
            for line in text.splitlines()
            if line.startswith("dpfl: ") and "warning:" not in line
        ]
        return (
            lines[-1].removeprefix("dpfl: ")
            if lines
            else "It ended without a message. Start it from a terminal to see why."
        )
