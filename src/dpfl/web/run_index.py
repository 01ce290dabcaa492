"""Lists the runs in a folder. A run is read again when it changes, and nothing outside the folder
is read.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpfl.errors import DpflError
from dpfl.run.records.folder import METRICS, RunFolder
from dpfl.web.run_line import line_of, refuse_malformed, state_of, unreadable_line

NESTED_FOLDER = "run"
"""The folder in which `dpfl up` puts its run, inside a folder for the whole federation."""

WATCHED_FILES = (
    "experiment.toml",
    "result.json",
    METRICS,
    f"{METRICS}-wal",
    "certificate.json",
    "audit.json",
)
"""Files whose age tells whether a run has changed."""

MOST_LETTERS = 255


class RunIndex:
    """The runs of one folder, by name."""

    def __init__(self, root: Path) -> None:
        """Opens a folder of runs.

        Args:
            root: The folder. It need not exist yet.
        """
        self.root = root.resolve()
        self._lines: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def open(self, name: str) -> RunFolder:
        """Opens a run.

        Args:
            name: The name of its folder, or two names with a slash between them.

        Returns:
            The folder of the run.

        Raises:
            DpflError: If there is no such run, or any file of it lies outside the folder of runs.
        """
        path = self._inside(name)
        if not (path / "experiment.toml").is_file():
            raise DpflError(f"There is no run {name!r} in this folder.")
        for place in (path, path / "ledger", path / "nodes"):
            if place.is_dir() and (link := next(self._links_outside(place), None)):
                raise DpflError(
                    f"{link} of the run {name!r} lies outside the folder of runs, so it is not "
                    "read here."
                )
        return RunFolder(path)

    def free(self, name: str) -> Path:
        """Finds a place for a new run.

        Args:
            name: Its name.

        Returns:
            The path of its folder, which does not exist yet.

        Raises:
            DpflError: If the name is used or is not the name of a run.
        """
        path = self._inside(name)
        if path.exists():
            raise DpflError(f"The name {name!r} is already used here. Choose another name.")
        return path

    def names(self) -> list[str]:
        """Lists all runs.

        Returns:
            Their names, including those inside the folder of a federation.
        """
        names = []
        try:
            with os.scandir(self.root) as entries:
                for entry in entries:
                    if entry.name.startswith(".") or not entry.is_dir(follow_symlinks=False):
                        continue
                    if os.path.exists(f"{entry.path}/experiment.toml"):
                        names.append(entry.name)
                    elif os.path.exists(f"{entry.path}/{NESTED_FOLDER}/experiment.toml"):
                        names.append(f"{entry.name}/{NESTED_FOLDER}")
        except FileNotFoundError:
            return []
        return names

    def lines(self) -> list[dict[str, Any]]:
        """Reads one line per run, and only of runs that have changed since the last call.

        Returns:
            The lines, the latest run first.
        """
        with self._lock:
            lines = {name: line for name in self.names() if (line := self._line(name))}
            self._lines = {name: entry for name, entry in self._lines.items() if name in lines}

        def latest(line: dict[str, Any]) -> tuple[str, str]:
            return line["started"] or "", line["name"]

        return sorted(lines.values(), key=latest, reverse=True)

    def _line(self, name: str) -> dict[str, Any] | None:
        if not _is_text(name):
            readable = os.fsencode(name).decode(errors="replace")
            return unreadable_line(readable, "The name of its folder is not valid text. Rename it.")
        path = self.root / name
        marks = tuple(_age(path / file) for file in WATCHED_FILES)
        entry = self._lines.get(name)
        if entry is None or entry[0] != marks:
            try:
                with refuse_malformed(name):
                    entry = marks, line_of(self.open(name), name)
            except DpflError as error:
                entry = marks, unreadable_line(name, str(error))
            self._lines[name] = entry
        line = entry[1]
        if line["state"] in ("finished", "unreadable"):
            return line if path.is_dir() else None
        return line | {"state": state_of(RunFolder(path))}

    def _inside(self, name: str) -> Path:
        parts = name.split("/")
        is_malformed = "\0" in name or "\\" in name or len(name) > MOST_LETTERS or len(parts) > 2
        if is_malformed or any(not part or part.startswith(".") for part in parts):
            raise DpflError(f"{name[:80]!r} is not the name of a run.")
        path = self.root.joinpath(*parts)
        try:
            real = path.resolve()
        except (OSError, RuntimeError) as error:
            raise DpflError(f"{name[:80]!r} cannot be read ({error}).") from None
        if real != path:
            raise DpflError(
                f"The run {name[:80]!r} lies outside the folder of runs, so it is not read here."
            )
        return path

    def _links_outside(self, folder: Path) -> Iterator[str]:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_symlink() and not Path(entry.path).resolve().is_relative_to(self.root):
                    yield entry.name


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _age(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
