"""Reads from a node's log which releases it reported, and finds those that its ledger lacks.

The log is not signed and may be incomplete. It is the last evidence of releases whose signed heads
are all gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dpfl.errors import DpflError
from dpfl.privacy import Ledger
from dpfl.privacy.accounting.events import Event, EventCounts, add, decode
from dpfl.privacy.ledger.chain import ChainTail

AT_ONCE = 500
"""Rows of a ledger that are looked up together."""


@dataclass(frozen=True)
class LoggedRelease:
    """A line of the node's log about releases.

    Attributes:
        event: The event of each release.
        count: How many releases.
        tail: Where the ledger's chain ended then. Empty in logs of earlier versions.
        start: The name of the node's start.
    """

    event: Event
    count: int
    tail: ChainTail
    start: str


def read_log(folder: Path) -> list[LoggedRelease]:
    """Reads every line about releases from a node's log files, the oldest first.

    Args:
        folder: The node's folder.

    Returns:
        The lines. Whatever else the files contain is left out.
    """
    releases: list[LoggedRelease] = []
    for path in sorted(folder.glob("node.log*"), reverse=True):
        for line in path.read_text(errors="replace").splitlines():
            try:
                releases.append(_parse(line))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError, DpflError):
                continue
    return releases


def _parse(line: str) -> LoggedRelease:
    words = json.loads(line)
    row, seal, start = words.get("ledger") or (0, "", "")
    tail = ChainTail(int(row), str(seal))
    return LoggedRelease(decode(words["release"]), int(words["count"]), tail, str(start))


def missing_releases(
    ledger: Ledger, logged_releases: Iterable[LoggedRelease]
) -> list[LoggedRelease]:
    """Finds lines whose releases the ledger does not include.

    Args:
        ledger: The node's ledger.
        logged_releases: Lines of the log.

    Returns:
        The lines whose rows the ledger's chain never had.
    """
    logged_releases = [release for release in logged_releases if release.tail.links]
    rows = sorted({release.tail.links for release in logged_releases})
    chain = {
        tail
        for first in range(0, len(rows), AT_ONCE)
        for tail in ledger.tails_at(rows[first : first + AT_ONCE])
    }
    return [
        release
        for release in logged_releases
        if release.tail not in chain and not ledger.includes(release.tail, release.start)
    ]


def unlogged_loss(ledger: Ledger, folder: Path) -> list[LoggedRelease]:
    """Compares the ledger with the last line of the log.

    Args:
        ledger: The node's ledger.
        folder: The node's folder.

    Returns:
        That line, if the ledger does not include it; otherwise nothing.
    """
    return missing_releases(
        ledger, [release for release in read_log(folder) if release.tail.links][-1:]
    )


def total_counts(lines: Iterable[LoggedRelease]) -> EventCounts:
    """Adds up the releases of some lines.

    Args:
        lines: Lines of the log.

    Returns:
        The number of releases of each event.
    """
    total: EventCounts = {}
    for release in lines:
        total = add(total, release.event, release.count)
    return total
