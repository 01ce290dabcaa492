"""The folder of runs: what lies in it, read again where it changed, and never anything outside of
it.
"""

from __future__ import annotations

import os
import threading
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpfl.errors import DpflError
from dpfl.run.folder import METRICS, RunFolder
from dpfl.run.metrics import LESS_IS_BETTER, RoundRow, reading

HEADS = ("run", "experiment.data", "resolved", "resolved.algorithm", "resolved.budget")
NESTED = "run"
"""Where `dpfl up` has its run, within a folder for all of it."""
KEPT = (
    "experiment.toml",
    "result.json",
    METRICS,
    f"{METRICS}-wal",
    "certificate.json",
    "audit.json",
)
"""Files whose age tells whether a run is as it was."""


@contextmanager
def as_runs_write(name: str) -> Iterator[None]:
    """Anybody may have written what lies in a folder: what no run writes is a sentence too."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        told = f"{type(error).__name__}: {error}"
        raise DpflError(
            f"The run {name!r} holds what no run writes ({told[:200]}); restore it from a copy."
        ) from error


class RunIndex:
    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._known: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def open(self, name: str) -> RunFolder:
        """The run of this name; refused where it, or any file of it, lies elsewhere."""
        path = self._inside(name)
        folder = RunFolder(path)
        if not (path / "experiment.toml").is_file():
            raise DpflError(f"There is no run {name!r} here, or not any more.")
        for place in (path, path / "ledger", path / "nodes"):
            if place.is_dir() and (odd := next(self._leading_out(place), None)):
                raise DpflError(
                    f"{odd} of the run {name!r} lies outside of the folder of runs: it is not read "
                    "here."
                )
        return folder

    def free(self, name: str) -> Path:
        """A place for a new run of this name."""
        path = self._inside(name)
        if path.exists():
            raise DpflError(
                f"There is something called {name!r} here already; choose another name."
            )
        return path

    def _inside(self, name: str) -> Path:
        parts = name.split("/")
        odd = "\0" in name or "\\" in name or len(name) > 255 or len(parts) > 2
        if odd or any(not part or part.startswith(".") for part in parts):
            raise DpflError(f"{name[:80]!r} is not the name of a run.")
        path = self.root.joinpath(*parts)
        try:
            found = path.resolve()
        except (OSError, RuntimeError) as error:
            raise DpflError(f"{name[:80]!r} cannot be read ({error}).") from None
        if found != path:
            raise DpflError(
                f"The run {name[:80]!r} lies outside of the folder of runs: it is not read here."
            )
        return path

    def _leading_out(self, folder: Path) -> Iterator[str]:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_symlink() and not Path(entry.path).resolve().is_relative_to(self.root):
                    yield entry.name

    def names(self) -> list[str]:
        """Of all runs, also of those inside of a federation's folder; what is not there any more is
        left out.
        """
        found = []
        try:
            with os.scandir(self.root) as entries:
                for entry in entries:
                    if entry.name.startswith(".") or not entry.is_dir(follow_symlinks=False):
                        continue
                    if os.path.exists(f"{entry.path}/experiment.toml"):
                        found.append(entry.name)
                    elif os.path.exists(f"{entry.path}/{NESTED}/experiment.toml"):
                        found.append(f"{entry.name}/{NESTED}")
        except FileNotFoundError:
            return []
        return found

    def lines(self) -> list[dict[str, Any]]:
        """A line a run, the latest first; read anew where a file of it changed."""
        with self._lock:
            lines = {name: line for name in self.names() if (line := self._line(name))}
            self._known = {name: known for name, known in self._known.items() if name in lines}
        return sorted(
            lines.values(), key=lambda line: (line["started"] or "", line["name"]), reverse=True
        )

    def _line(self, name: str) -> dict[str, Any] | None:
        if not _is_text(name):
            return _unreadable(
                os.fsencode(name).decode(errors="replace"),
                "The name of its folder is no text; rename it.",
            )
        path = self.root / name
        marks = tuple(_mark(path / file) for file in KEPT)
        known = self._known.get(name)
        if known is None or known[0] != marks:
            try:
                with as_runs_write(name):
                    known = marks, line_of(self.open(name), name)
            except DpflError as error:
                known = marks, _unreadable(name, str(error))
            self._known[name] = known
        line = known[1]
        if line["state"] in ("finished", "unreadable"):
            return line if path.is_dir() else None
        return line | {"state": state_of(RunFolder(path))}


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _mark(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def state_of(folder: RunFolder) -> str:
    """finished, running, paused, or stopped: at rest, and can go on."""
    if folder.file("result.json").exists():
        return "finished"
    process = folder.process()
    if process is None:
        return "stopped"
    return "paused" if is_paused(process) else "running"


def is_paused(process: int) -> bool:
    """By the system's own word, where it has one."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except (OSError, IndexError):
        return False


def line_of(folder: RunFolder, name: str) -> dict[str, Any]:
    """What a list says of a run: of the experiment only the tables that it needs, which is five
    times as quick as all.
    """
    record, result = heads(folder.file("experiment.toml")), folder.json("result.json") or {}
    resolved, privacy = record.get("resolved", {}), result.get("privacy", {})
    started = record.get("run", {}).get("started")
    last = (
        None if result else last_row(folder)
    )  # to look into a table leaves marks beside it, and takes time
    named = result.get("headline") or "accuracy"
    measured = result.get("metrics", {}).get(named, result.get("accuracy"))
    if not result and last:
        measured = last.headline if last.headline is not None else last.accuracy
    return {
        "name": name,
        "state": state_of(folder),
        "started": None if started is None else str(started),
        "ended": result.get("ended"),
        "system": resolved.get("algorithm", {}).get("name"),
        "variant": resolved.get("algorithm", {}).get("variant"),
        "data": record.get("experiment", {}).get("data", {}).get("name"),
        "model": resolved.get("model"),
        "clients": resolved.get("clients"),
        "seed": resolved.get("seed"),
        "rounds": result.get("rounds", last.round if last else 0),
        "budget": {
            key: resolved.get("budget", {}).get(key)
            for key in ("epsilon", "delta", "rounds", "bytes", "seconds")
        },
        "headline": named,
        "less_is_better": named in LESS_IS_BETTER,
        "measured": measured,
        "noisy": bool(result.get("noisy")),
        "epsilon": privacy.get("used") if result else last.epsilon if last else None,
        "proven": privacy.get("proven"),
        "claimed": privacy.get("claimed"),
        "unit": privacy.get("unit"),
        "delta": privacy.get("delta"),
        "stopped_by": result.get("stopped_by"),
        "certificate": folder.file("certificate.json").exists(),
        "audited": folder.file("audit.json").exists(),
        "error": None,
    }


def _unreadable(name: str, error: str) -> dict[str, Any]:
    words = (
        "system",
        "variant",
        "data",
        "model",
        "clients",
        "seed",
        "measured",
        "epsilon",
        "proven",
        "claimed",
        "unit",
    )
    empty = dict.fromkeys((*words, "delta", "stopped_by", "started", "ended"))
    fixed = {
        "budget": {},
        "rounds": 0,
        "headline": "",
        "noisy": False,
        "certificate": False,
        "audited": False,
    }
    return {"name": name, "state": "unreadable", **empty, **fixed, "error": error}


def heads(path: Path, wanted: Sequence[str] = HEADS) -> Mapping[str, Any]:
    """Some tables of an experiment as run, which has each under a line of its own."""
    lines, taken = [], False
    try:
        with path.open(encoding="utf-8") as file:
            for line in file:
                if line.startswith("["):
                    taken = line.strip()[1:-1] in wanted
                if taken:
                    lines.append(line)
        found = tomllib.loads("".join(lines))
    except (OSError, ValueError, RecursionError) as error:
        raise DpflError(f"{path.name} cannot be read ({error}); it may be half written.") from None
    if not isinstance(found.get("resolved"), dict):
        raise DpflError(f"{path.name} is not the record of a run, or half of one.")
    return found


def last_row(folder: RunFolder) -> RoundRow | None:
    try:
        names = ", ".join(RoundRow.__dataclass_fields__)
        query = f"SELECT {names} FROM rounds ORDER BY round DESC LIMIT 1"
        found = reading(
            folder.file(METRICS),
            lambda connection: [RoundRow(*row) for row in connection.execute(query)],
        )
    except DpflError:
        return None
    return found[0] if found else None
