"""Checks a federation after a soak: compares each node's log, tasks and ledger with what the server
recorded.

    python scripts/soak_check.py NODES RUN

A node logs a release once its reply is on disk, before it sends the reply, and again whenever it
sends the reply again. At no moment may a node have logged more releases than its ledger has debits
for. Every reply that the server used must be in the log of its node. Every reply that the server
did not get must be in its list of lost replies.
"""

from __future__ import annotations

import datetime
import json
import sqlite3
import sys
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpfl.node.statement import check
from dpfl.privacy import Ledger
from dpfl.protocol.keys import load_public, public_file

FAULTS = ("releases without a debit", "replies used without a log entry", "statement differs")
"""Figures of a node that are 0 or false where the ledgers account for every release."""


@dataclass(frozen=True)
class LoggedTask:
    """A task whose reply was on disk, by the node's log."""

    at: float
    name: str
    count: int


@dataclass(frozen=True)
class SoakReport:
    """What a check of a federation showed."""

    rounds: int
    content: dict[str, Any]
    consistent: bool


def read(nodes: Path, run: Path) -> SoakReport:
    """Compares the files of all nodes with the result of the run."""
    result: dict[str, Any] = {"rounds": 0, "lost": []}
    if (run / "result.json").exists():
        result = json.loads((run / "result.json").read_text())
    members = json.loads((run / "nodes.json").read_text())
    losses = Counter(line.split(": ")[0].rpartition("client ")[2] for line in result["lost"])
    figures = {
        name: _node(nodes / name, name, run, result["rounds"] - losses[str(number)])
        for number, name in enumerate(members)
    }
    content = {"rounds": result["rounds"], "lost replies": result["lost"], "nodes": figures}
    consistent = not any(node[fault] for node in figures.values() for fault in FAULTS)
    return SoakReport(result["rounds"], content, consistent)


def _node(folder: Path, name: str, run: Path, used: int) -> dict[str, Any]:
    logged_tasks, tasks = _logged_tasks(folder), _tasks(folder)
    with closing(Ledger.read(folder / "ledger" / f"{name}.sqlite")) as ledger:
        debits, debit_count = ledger.debits(), sum(ledger.spending().values())
    replies = {task.name for task in logged_tasks}
    times = [(at, count) for *_, count, at in debits]
    return {
        "tasks begun": len(tasks),
        "tasks begun again": sum(attempts - 1 for _, attempts in tasks.values()),
        "replies logged": len(replies),
        "replies used": used,
        "releases logged": sum(task.count for task in logged_tasks),
        "releases debited": debit_count,
        "releases without a debit": _excess(logged_tasks, times),
        "replies used without a log entry": max(0, used - len(replies)),
        "statement differs": _differs(run / "nodes" / f"{name}.json", folder, debit_count),
    }


def _logged_tasks(folder: Path) -> list[LoggedTask]:
    """Reads the tasks with a logged reply.

    A kill may come between the file of a reply and its log entry. The task then first appears in
    the log when its reply is sent again.
    """
    logged_tasks: list[LoggedTask] = []
    counts = {name: count for name, (count, _) in _tasks(folder).items()}
    for file in sorted(folder.glob("node.log*"), reverse=True):
        for line in file.read_text().splitlines():
            with suppress(ValueError):
                entry = json.loads(line)
                if entry["event"] not in ("released", "sent again"):
                    continue
                name = f"{entry['run']}/{entry['order']}"
                first = name not in {task.name for task in logged_tasks}
                if entry["event"] == "released" or first:
                    at = datetime.datetime.fromisoformat(entry["at"]).timestamp()
                    logged_tasks.append(LoggedTask(at, name, entry.get("count", counts[name])))
    return logged_tasks


def _tasks(folder: Path) -> dict[str, tuple[int, int]]:
    """Maps each task to its number of releases and its number of attempts."""
    with closing(sqlite3.connect(folder / "orders.sqlite")) as connection:
        rows = connection.execute("SELECT run, name, count, attempts FROM orders").fetchall()
    return {f"{run}/{name}": (count, attempts) for run, name, count, attempts in rows}


def _excess(tasks: list[LoggedTask], debits: list[tuple[float, int]]) -> int:
    """Returns by how much logged releases exceeded debits, at the worst moment."""
    excess = 0
    for moment in tasks:
        releases = sum(task.count for task in tasks if task.at <= moment.at)
        debit_count = sum(count for at, count in debits if at <= moment.at + 0.001)
        excess = max(excess, releases - debit_count)
    return excess


def _differs(statement: Path, folder: Path, debit_count: int) -> bool:
    """Tells whether the node's signed statement exists and disagrees with its ledger."""
    if not statement.exists():
        return False
    content = check(
        json.loads(statement.read_text()), load_public(public_file(folder / "node.pem"))
    )
    return sum(content["releases"].values()) != debit_count


if __name__ == "__main__":
    report = read(Path(sys.argv[1]), Path(sys.argv[2]))
    print(json.dumps(report.content, indent=2))
    sys.exit(not report.consistent)
