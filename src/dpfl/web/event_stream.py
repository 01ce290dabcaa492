"""A run as it goes, to all who watch: looked at once for all of them, and only while somebody
watches.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from dpfl.data.names import client_names
from dpfl.errors import DpflError
from dpfl.run.folder import METRICS, RunFolder
from dpfl.web.run_index import RunIndex, as_runs_write, heads, state_of
from dpfl.web.run_views import now

EVERY = 0.7
"""Seconds from one look to the next."""
SILENCE = 15.0
"""Seconds after which a line is sent all the same, so that a connection that was lost is
noticed.
"""
MOST_WAITING = 64
"""Events that a page may be behind; it is sent all that it lacks when it asks again."""
MOST_WATCHERS = 200


@dataclass
class WatchedRun:
    """One run, and the queues of those who watch it."""

    queues: set[asyncio.Queue[str | None]] = field(default_factory=set)
    task: asyncio.Task[None] | None = None


class EventStream:
    def __init__(self, shelf: RunIndex, is_starting: Callable[[str], bool]) -> None:
        self._shelf, self._is_starting = shelf, is_starting
        self._watched: dict[str, WatchedRun] = {}

    def refuse_more(self) -> None:
        """Before an answer begins: what has begun cannot say that it was refused."""
        if sum(len(one.queues) for one in self._watched.values()) >= MOST_WATCHERS:
            raise DpflError(f"{MOST_WATCHERS} pages watch runs already; close some.")

    async def watch(self, name: str, after: int) -> AsyncIterator[str]:
        """Server-sent events from the round `after` on, until the run ends or is gone."""
        watched, queue = (
            self._watched.setdefault(name, WatchedRun()),
            asyncio.Queue[str | None](MOST_WAITING),
        )
        watched.queues.add(queue)
        try:
            first = await asyncio.to_thread(self._look, name, after)
            yield _event(first)
            if first.get("over"):
                return
            if watched.task is None or watched.task.done():
                watched.task = asyncio.create_task(self._follow(name, watched, first["last"]))
            while True:
                try:
                    event = await asyncio.wait_for(queue.get(), SILENCE)
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                if event is None:
                    return
                yield event
        finally:
            watched.queues.discard(queue)
            if not watched.queues:
                if watched.task:
                    watched.task.cancel()
                self._watched.pop(name, None)

    async def _follow(self, name: str, watched: WatchedRun, last: int) -> None:
        before: dict[str, Any] = {}
        mark = None
        while watched.queues:
            await asyncio.sleep(EVERY)
            seen = await asyncio.to_thread(self._mark, name)
            if seen == mark:
                continue
            mark, found = seen, await asyncio.to_thread(self._look, name, last)
            last = found["last"]
            if found != before:
                self._tell(watched, _event(found))
            before = found
            if found.get("over"):
                self._tell(watched, None)
                return

    def _tell(self, watched: WatchedRun, event: str | None) -> None:
        for queue in list(watched.queues):
            late = (
                queue.full()
            )  # whoever does not read is let go, and asks again for all that it lacks
            if late:
                queue.get_nowait()
            queue.put_nowait(None if late else event)

    def _mark(self, name: str) -> tuple[Any, ...]:
        """What changes when a run does: the ages of its files, and whose process it is."""
        path = self._shelf.root / name
        ages = []
        for file in (
            "result.json",
            METRICS,
            f"{METRICS}-wal",
            "checkpoint.safetensors",
            "experiment.toml",
        ):
            try:
                ages.append((path / file).stat().st_mtime_ns)
            except OSError:
                ages.append(0)
        return (*ages, state_of(RunFolder(path)), self._is_starting(name))

    def _look(self, name: str, after: int) -> dict[str, Any]:
        try:
            folder = self._shelf.open(name)
            with as_runs_write(name):
                found = now(folder, after, _names(folder))
        except (DpflError, OSError) as error:
            return {"gone": True, "why": str(error), "over": True, "last": after}
        if found["state"] == "stopped" and self._is_starting(name):
            found["state"] = "starting"
        last = max([after, *found["rows"]["round"]])
        return found | {"last": last, "over": found["state"] in ("finished", "stopped")}


def _names(folder: RunFolder) -> list[str]:
    resolved = heads(folder.file("experiment.toml"), ("resolved",))["resolved"]
    return list(resolved.get("names") or client_names(int(resolved.get("clients", 0))))


def _event(found: dict[str, Any]) -> str:
    return f"data: {json.dumps(found)}\n\n"
