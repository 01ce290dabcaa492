"""A run as tables: its rounds, its updates, its accounts, its statement. What is drawn or listed of
a run is made of these.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from dpfl.data.names import client_names
from dpfl.errors import DpflError
from dpfl.privacy.ledger.client_ledgers import FEDERATION, ledger_path
from dpfl.privacy.ledger.ledger import Ledger
from dpfl.run.folder import METRICS, RunFolder
from dpfl.run.metrics import RoundRow, UpdateRow, read_lost, read_thinned, read_updates
from dpfl.views.terminal import summary

MOST_ROWS = 4000
"""Of a longer run its rounds are shown as means over as many rounds each: a picture has no more
places.
"""
MOST_UPDATES = 20_000
MOST_ACCOUNTS = 200
"""Ledgers that are opened for their limits."""

_LOST = re.compile(r"round (\d+), client (\d+): (.*)", re.DOTALL)


@dataclass(frozen=True)
class LostReply:
    """A reply that did not count: of which round (0 is before or after all of them), whose, and
    why.
    """

    round: int
    client: str
    why: str


@dataclass(frozen=True)
class RunTables:
    name: str
    folder: RunFolder
    experiment: Mapping[str, Any]
    summary: Mapping[str, Any]
    rows: Sequence[RoundRow]
    statement: Mapping[str, Any] = field(default_factory=dict)
    audit: Mapping[str, Any] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)
    within: Path | None = None
    """No ledger outside of this is opened, whatever the run says of where its ledgers lie."""

    @classmethod
    def read(cls, path: Path, name: str = "", within: Path | None = None) -> RunTables:
        """Of a run that ended, or is under way: whatever there is of it."""
        folder = RunFolder.open(path)
        result = folder.json("result.json") or {}
        return cls(
            name or folder.path.name,
            folder,
            folder.experiment(),
            summary(folder),
            read_thinned(folder.file(METRICS), MOST_ROWS),
            folder.json("statement.json") or result.get("privacy", {}),
            folder.json("audit.json") or {},
            result,
            within,
        )

    @cached_property
    def updates(self) -> Sequence[UpdateRow]:
        return read_updates(self.folder.file(METRICS), MOST_UPDATES)

    @property
    def steps(self) -> list[UpdateRow]:
        """The step of each round, of which its noise is known or not."""
        return [update for update in self.updates if not update.whose]

    @property
    def single(self) -> list[UpdateRow]:
        """Updates of single clients, where they are nobody's secret."""
        return [update for update in self.updates if update.whose]

    @cached_property
    def lost(self) -> list[LostReply]:
        lines = read_lost(self.folder.file(METRICS)) or [
            str(line) for line in self.result.get("lost", ())
        ]
        return [self._lost(line) for line in lines]

    def _lost(self, line: str) -> LostReply:
        found = _LOST.fullmatch(line)
        if found is None:
            return LostReply(0, "", line)
        place, names = int(found[2]), self.clients
        return LostReply(
            int(found[1]), names[place] if place < len(names) else f"client {place}", found[3]
        )

    @property
    def clients(self) -> Sequence[str]:
        resolved = self.experiment["resolved"]
        return resolved.get("names") or client_names(int(resolved.get("clients", 0)))

    @property
    def budget(self) -> Mapping[str, Any]:
        found = self.experiment["resolved"].get("budget", {})
        return found if isinstance(found, dict) else {}

    @property
    def headline(self) -> str:
        return str(self.summary.get("headline") or "accuracy")

    @property
    def unit(self) -> str:
        """Whom the epsilon is for; "none" where nobody is protected, "" while nobody has said."""
        return str(self.statement.get("unit", ""))

    @property
    def guarantee(self) -> str:
        """What an epsilon of this run is one of: without these words it says nothing."""
        delta = self.statement.get("delta", self.budget.get("delta"))
        whom = f"for one {self.unit}, " if self.unit not in ("", "none") else ""
        return whom + (f"delta {delta:g}" if isinstance(delta, float) else "delta unknown")

    @property
    def keyed(self) -> bool:
        """Whether the noise came from a seed, so that a guarantee holds only while nobody knows
        it.
        """
        return bool(self.experiment["resolved"].get("entropy") != "system")

    @property
    def ledgers(self) -> Path:
        return Path(self.experiment["resolved"].get("ledger") or self.folder.ledgers)

    @cached_property
    def limits(self) -> Mapping[str, float]:
        """What each account allows in all, by its owner; none where it has no limit, or its ledger
        is not here.
        """
        found = {}
        for name in list(self.statement.get("per_client", {}))[:MOST_ACCOUNTS]:
            path = ledger_path(self.ledgers, FEDERATION if name == "every client" else name)
            try:
                if self.within and not path.resolve().is_relative_to(self.within):
                    continue
                with closing(Ledger.read(path)) as ledger:
                    limit = ledger.limit
            except DpflError:
                continue
            if limit:
                found[name] = limit.epsilon
        return found


def read_all(paths: Sequence[Path]) -> list[RunTables]:
    """Several runs, each by a name of its own: by as much of its path as tells it from the
    others.
    """
    resolved = [path.resolve() for path in paths]
    if twice := next((path for path in resolved if resolved.count(path) > 1), None):
        raise DpflError(f"The run in {twice} is named twice; name it once.")
    depth = 1
    while len({path.parts[-depth:] for path in resolved}) < len(resolved):
        depth += 1
    return [
        RunTables.read(path, "/".join(real.parts[-depth:]))
        for path, real in zip(paths, resolved, strict=True)
    ]
