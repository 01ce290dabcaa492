"""The books of a federation after a soak: what each node's log, orders and ledger say, and what the
server says that it got.

    python scripts/soak_books.py NODES RUN

A release is told of in a node's log when its reply is on disk, before it leaves, and again when it
is sent again. At no moment may a node have told of more than its ledger had paid for; what the
server used must be among what was told of; and every reply that it did not get must be on the list
of those that were lost.
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


@dataclass(frozen=True)
class Told:
    """By a node's log: an order whose reply was on disk."""

    at: float
    order: str
    count: int


@dataclass(frozen=True)
class Books:
    rounds: int
    words: dict[str, Any]
    balanced: bool


def read(nodes: Path, run: Path) -> Books:
    result = (
        json.loads((run / "result.json").read_text())
        if (run / "result.json").exists()
        else {"rounds": 0, "lost": []}
    )
    members = json.loads((run / "nodes.json").read_text())
    lost = Counter(line.split(": ")[0].rpartition("client ")[2] for line in result["lost"])
    found = {
        name: _node(nodes / name, name, run, result["rounds"] - lost[str(place)])
        for place, name in enumerate(members)
    }
    words = {"rounds": result["rounds"], "replies lost": result["lost"], "nodes": found}
    wrong = ("uncounted", "used without being told of", "statement differs")
    return Books(
        result["rounds"], words, not any(node[word] for node in found.values() for word in wrong)
    )


def _node(place: Path, name: str, run: Path, used: int) -> dict[str, Any]:
    told, orders = _told(place), _orders(place)
    with closing(Ledger.read(place / "ledger" / f"{name}.sqlite")) as ledger:
        debits, paid = ledger.debits(), sum(ledger.spending().values())
    answered = {one.order for one in told}
    return {
        "orders begun": len(orders),
        "begun again": sum(attempts - 1 for _, attempts in orders.values()),
        "replies told of": len(answered),
        "replies used": used,
        "releases told of": sum(one.count for one in told),
        "releases paid": paid,
        "uncounted": _uncounted(told, [(at, count) for *_, count, at in debits]),
        "used without being told of": max(0, used - len(answered)),
        "statement differs": _differs(run / "nodes" / f"{name}.json", place, paid),
    }


def _told(place: Path) -> list[Told]:
    """A kill may come between the disk and the line, so that an order is first told of when its
    reply is sent again.
    """
    found: list[Told] = []
    counts = {order: count for order, (count, _) in _orders(place).items()}
    for file in sorted(place.glob("node.log*"), reverse=True):
        for line in file.read_text().splitlines():
            with suppress(ValueError):
                said = json.loads(line)
                if said["event"] not in ("released", "sent again"):
                    continue
                order = f"{said['run']}/{said['order']}"
                if said["event"] == "released" or order not in {one.order for one in found}:
                    at = datetime.datetime.fromisoformat(said["at"]).timestamp()
                    found.append(Told(at, order, said.get("count", counts[order])))
    return found


def _orders(place: Path) -> dict[str, tuple[int, int]]:
    """How many releases each order asked for, and how often it was begun."""
    with closing(sqlite3.connect(place / "orders.sqlite")) as orders:
        rows = orders.execute("SELECT run, name, count, attempts FROM orders").fetchall()
    return {f"{run}/{name}": (count, attempts) for run, name, count, attempts in rows}


def _uncounted(told: list[Told], debits: list[tuple[float, int]]) -> int:
    """The most by which what was told of was ahead of what was paid for, at any moment."""
    worst = 0
    for moment in told:
        released = sum(one.count for one in told if one.at <= moment.at)
        worst = max(worst, released - sum(count for at, count in debits if at <= moment.at + 0.001))
    return worst


def _differs(statement: Path, place: Path, paid: int) -> bool:
    """Whether the node's own signed word is there and is not that of its ledger."""
    if not statement.exists():
        return False
    said = check(json.loads(statement.read_text()), load_public(public_file(place / "node.pem")))
    return sum(said["releases"].values()) != paid


if __name__ == "__main__":
    books = read(Path(sys.argv[1]), Path(sys.argv[2]))
    print(json.dumps(books.words, indent=2))
    sys.exit(not books.balanced)
