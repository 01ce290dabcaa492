"""Sends the progress of a run to all pages that watch it.

A run is read once for all of its pages, and only while at least one page watches.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from dpfl.errors import DpflError
from dpfl.run.records.folder import METRICS, RunFolder
from dpfl.web.run_index import RunIndex
from dpfl.web.run_line import heads, refuse_malformed, state_of
from dpfl.web.run_views import news

EVERY = 0.7
"""Seconds between two checks of a run."""
SILENCE = 15.0
"""Seconds of silence after which a comment is sent, so that a lost connection is noticed."""
MOST_WAITING = 64
"""Events that a page may be behind. Beyond that it is disconnected and reconnects."""
MOST_WATCHERS = 200

WATCHED_FILES = (
    "result.json",
    METRICS,
    f"{METRICS}-wal",
    "checkpoint.safetensors",
    "experiment.toml",
)
"""Files that change when a run moves on."""

TABLES = ("resolved", "resolved.algorithm", "resolved.budget")


@dataclass
class WatchedRun:
    """One run, with the queues of the pages that watch it."""

    queues: set[asyncio.Queue[str | None]] = field(default_factory=set)
    task: asyncio.Task[None] | None = None


class EventStream:
    """Server-sent events of runs."""

    def __init__(self, index: RunIndex, is_starting: Callable[[str], bool]) -> None:
        """Makes a stream that watches nothing yet.

        Args:
            index: The folder of runs.
            is_starting: Whether a process was started for a run that has not begun yet.
        """
        self._index, self._is_starting = index, is_starting
        self._watched_runs: dict[str, WatchedRun] = {}

    def refuse_more(self) -> None:
        """Refuses another page, before its answer begins and can no longer be refused.

        Raises:
            DpflError: If too many pages watch runs.
        """
        if (
            sum(len(watched_run.queues) for watched_run in self._watched_runs.values())
            >= MOST_WATCHERS
        ):
            raise DpflError(f"{MOST_WATCHERS} pages already watch runs. Close some of them.")

    async def watch(self, name: str, after: int) -> AsyncIterator[str]:
        """Sends what happens to a run until it ends or is gone.

        Args:
            name: The name of the run.
            after: The last round that the page has.

        Yields:
            Server-sent events.
        """
        watched_run = self._watched_runs.setdefault(name, WatchedRun())
        queue = asyncio.Queue[str | None](MOST_WAITING)
        watched_run.queues.add(queue)
        try:
            first = await asyncio.to_thread(self._look, name, after)
            yield _event(first)
            if first.get("over"):
                return
            if watched_run.task is None or watched_run.task.done():
                watched_run.task = asyncio.create_task(
                    self._follow(name, watched_run, first["last"])
                )
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
            watched_run.queues.discard(queue)
            if not watched_run.queues:
                if watched_run.task:
                    watched_run.task.cancel()
                self._watched_runs.pop(name, None)

    async def _follow(self, name: str, watched_run: WatchedRun, last: int) -> None:
        earlier: dict[str, Any] = {}
        mark = None
        while watched_run.queues:
            await asyncio.sleep(EVERY)
            new_mark = await asyncio.to_thread(self._mark, name)
            if new_mark == mark:
                continue
            mark, event = new_mark, await asyncio.to_thread(self._look, name, last)
            last = event["last"]
            if event != earlier:
                self._send(watched_run, _event(event))
            earlier = event
            if event.get("over"):
                self._send(watched_run, None)
                return

    def _send(self, watched_run: WatchedRun, event: str | None) -> None:
        """Sends an event to every page. A page that is too far behind must reconnect."""
        for queue in list(watched_run.queues):
            behind = queue.full()
            if behind:
                queue.get_nowait()
            queue.put_nowait(None if behind else event)

    def _mark(self, name: str) -> tuple[Any, ...]:
        """Returns what changes when a run moves on: times of its files, and the process state."""
        path = self._index.root / name
        ages = []
        for file in WATCHED_FILES:
            try:
                ages.append((path / file).stat().st_mtime_ns)
            except OSError:
                ages.append(0)
        return (*ages, state_of(RunFolder(path)), self._is_starting(name))

    def _look(self, name: str, after: int) -> dict[str, Any]:
        try:
            folder = self._index.open(name)
            with refuse_malformed(name):
                resolved_section = heads(folder.file("experiment.toml"), TABLES)["resolved"]
                event = news(folder, after, resolved_section)
        except (DpflError, OSError) as error:
            return {"gone": True, "why": str(error), "over": True, "last": after}
        if event["state"] == "stopped" and self._is_starting(name):
            event["state"] = "starting"
        last = max([after, *event["rows"]["round"]])
        return event | {"last": last, "over": event["state"] in ("finished", "stopped")}


def _event(content: dict[str, Any]) -> str:
    return f"data: {json.dumps(content)}\n\n"
