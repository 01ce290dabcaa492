"""A run as tables: its rounds, updates, accounts and statement.

All figures and lists of a run are made from these.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from dpfl.errors import DpflError
from dpfl.privacy.figures import UNBOUNDED
from dpfl.privacy.ledger.client_ledgers import FEDERATION, ledger_path
from dpfl.privacy.ledger.ledger import Ledger
from dpfl.privacy.statement import PrivacyStatement
from dpfl.privacy.statement_view import scope
from dpfl.privacy.units import protects_nobody
from dpfl.run.metrics import RoundRow, UpdateRow, read_lost, read_thinned, read_updates
from dpfl.run.records.folder import METRICS, RunFolder
from dpfl.run.records.record_file import recorded_ledgers, recorded_names
from dpfl.views.run_summary import RunFacts, columns_of

MOST_ROWS = 4000
"""Rounds that are read. A longer run is read as means over as many rounds each."""
MOST_UPDATES = 20_000
MOST_ACCOUNTS = 200
"""Ledgers that are opened for their limits."""

_LOST_REPLY = re.compile(r"round (\d+), client (\d+): (.*)", re.DOTALL)


@dataclass(frozen=True)
class LostReply:
    """A reply that did not count."""

    round: int
    """0 if it belongs to no round."""
    client: str
    why: str

    @classmethod
    def parse(cls, line: str, names: Sequence[str]) -> LostReply:
        """Reads a reply from its line in the metrics.

        Args:
            line: Round, number of the client, and reason.
            names: The names of the clients.

        Returns:
            The reply. A line of another form is its own reason.
        """
        match = _LOST_REPLY.fullmatch(line)
        if match is None:
            return cls(0, "", line)
        place = int(match[2])
        name = names[place] if place < len(names) else f"client {place}"
        return cls(int(match[1]), name, match[3])

    def to_dict(self) -> dict[str, Any]:
        """Lists the fields for a web page.

        Returns:
            Round, client and reason; the round is None if it belongs to none.
        """
        return {"round": self.round or None, "client": self.client, "reason": self.why}


@dataclass(frozen=True)
class RunTables:
    """The content of a run's folder, finished or not."""

    name: str
    folder: RunFolder
    experiment: Mapping[str, Any]
    """The content of `experiment.toml`: as asked for, and as resolved."""
    summary: Mapping[str, Any]
    rows: Sequence[RoundRow]
    statement: Mapping[str, Any] = field(default_factory=dict)
    """The content of `statement.json`; empty until the run ends."""
    audit: Mapping[str, Any] = field(default_factory=dict)
    """The content of `audit.json`; empty without an audit."""
    result: Mapping[str, Any] = field(default_factory=dict)
    """The content of `result.json`; empty until the run ends."""
    within: Path | None = None
    """No ledger outside of this folder is opened, wherever the run says that its ledgers are."""

    @classmethod
    def read(cls, path: Path, name: str = "", within: Path | None = None) -> RunTables:
        """Reads a run that has ended or is under way.

        Args:
            path: The folder of the run.
            name: What to call the run; by default, the name of its folder.
            within: The folder that no opened ledger may lie outside of.

        Returns:
            Everything that the folder holds so far.

        Raises:
            DpflError: If the folder holds no run, or a file that cannot be read.
        """
        folder = RunFolder.open(path)
        record, result = folder.experiment(), folder.json("result.json") or {}
        return cls(
            name or folder.path.name,
            folder,
            record,
            columns_of(folder, record, RunFacts.of(record, result)),
            read_thinned(folder.file(METRICS), MOST_ROWS),
            folder.json("statement.json") or result.get("privacy", {}),
            folder.json("audit.json") or {},
            result,
            within,
        )

    @cached_property
    def facts(self) -> RunFacts:
        """What lists and comparisons show of the run."""
        return RunFacts.of(self.experiment, self.result)

    @cached_property
    def privacy(self) -> PrivacyStatement | None:
        """The statement as an object; None until the run ends."""
        return PrivacyStatement.from_dict(self.statement) if self.statement else None

    @property
    def epsilons(self) -> dict[str, float | str | None]:
        """The claimed, the proven and the audited epsilon: a number, a word, or None."""
        values = {
            "claimed": self.statement.get("claimed"),
            "proven": self.statement.get("proven"),
            "audited": self.audit.get("measured"),
        }
        return {
            kind: _finite(value) if isinstance(value, int | float) else value
            for kind, value in values.items()
        }

    @cached_property
    def updates(self) -> Sequence[UpdateRow]:
        """How far each round moved the model, and single updates that are nobody's secret."""
        return read_updates(self.folder.file(METRICS), MOST_UPDATES)

    @property
    def steps(self) -> list[UpdateRow]:
        """The step of each round, with the norm of its noise if that is known."""
        return [update for update in self.updates if not update.whose]

    @property
    def single(self) -> list[UpdateRow]:
        """Updates of single clients, which are kept only if they are nobody's secret."""
        return [update for update in self.updates if update.whose]

    @cached_property
    def lost_replies(self) -> list[LostReply]:
        """Replies that did not count."""
        lines = read_lost(self.folder.file(METRICS))
        lines = lines or [str(line) for line in self.result.get("lost", ())]
        return [LostReply.parse(line, self.clients) for line in lines]

    @property
    def clients(self) -> Sequence[str]:
        """The names of the clients."""
        return recorded_names(self.experiment["resolved"])

    @property
    def budget(self) -> Mapping[str, Any]:
        """The budget of the run: epsilon, delta, rounds, bytes, seconds."""
        return self.facts.budget

    @property
    def headline(self) -> str:
        """The name of the first metric."""
        return self.facts.headline

    @property
    def unit(self) -> str:
        """What is protected; "none" if nothing is, "" until the run ends."""
        return str(self.statement.get("unit", ""))

    @property
    def protects_nobody(self) -> bool:
        """Whether the run has ended and its statement names no unit; False until it ends."""
        return protects_nobody(self.unit)

    @property
    def guarantee(self) -> str:
        """What an epsilon of this run is for: unit and delta."""
        delta = self.statement.get("delta", self.budget.get("delta"))
        return scope(self.unit, delta if isinstance(delta, float) else None)

    @property
    def keyed(self) -> bool:
        """Whether the noise came from a seed. A guarantee then holds only while nobody knows it."""
        return bool(self.experiment["resolved"].get("entropy") != "system")

    @property
    def ledgers(self) -> Path:
        """The folder of the ledgers."""
        return recorded_ledgers(self.experiment["resolved"], self.folder.ledgers)

    @cached_property
    def limits(self) -> Mapping[str, float]:
        """The limit on epsilon that each account's owner has set, where its ledger is here."""
        limits = {}
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
                limits[name] = limit.epsilon
        return limits


def read_all(paths: Sequence[Path]) -> list[RunTables]:
    """Reads several runs.

    Args:
        paths: Their folders.

    Returns:
        The runs, each named by as much of its path as tells it from the others.

    Raises:
        DpflError: If a folder is given twice or holds no run.
    """
    real_paths = [path.resolve() for path in paths]
    if twice := next((path for path in real_paths if real_paths.count(path) > 1), None):
        raise DpflError(f"The run in {twice} is named twice. Name it once.")
    depth = 1
    while len({path.parts[-depth:] for path in real_paths}) < len(real_paths):
        depth += 1
    return [
        RunTables.read(path, "/".join(real.parts[-depth:]))
        for path, real in zip(paths, real_paths, strict=True)
    ]


def _finite(value: float) -> float | str | None:
    if math.isnan(value):
        return None
    return float(value) if math.isfinite(value) else UNBOUNDED
