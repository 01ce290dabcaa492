"""Runs that begin alike: where tau and the noise are given, a budget decides only where training
ends, so a longer run goes on where a shorter one was, and is bit for bit the run that began
anew."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from dpfl.errors import DpflError
from dpfl.run.digests import code_sha256
from dpfl.run.folder import RunFolder
from dpfl.run.metrics import RoundRow
from dpfl.run.recorder import SilentProgress
from dpfl.server.state import RunState

Series = Mapping[str, Sequence[float | None]]

GOES, ENDS = {"data", "model", "algorithm"}, {"budget", "evaluate"}
"""Sections that decide how a run goes; when it ends, and what is seen of it. A run with others
(ledgers or entropy of its own, say) is like no other."""
BUDGETS = {"epsilon", "delta", "rounds"}
"""Those that say beforehand how many whole rounds there are."""


def beginning(content: Mapping[str, Any], seed: int) -> str:
    """The same for all runs of which the shorter is the beginning of the longer; empty where a run
    is like no other.
    """
    algorithm = content.get("algorithm", {})
    given = algorithm.get("name") == "fedavg-dp" and {"tau", "noise_multiplier"} <= algorithm.keys()
    if not given or not content.keys() <= GOES | ENDS or _looked_at(content):
        return ""
    told = {name: section for name, section in content.items() if name in GOES}
    return hashlib.sha256(
        json.dumps([told, seed, code_sha256()], sort_keys=True).encode()
    ).hexdigest()[:24]


def _looked_at(content: Mapping[str, Any]) -> bool:
    """Whether anybody looks at the model before the end, or nobody knows when that is."""
    rounds, every = content["budget"].get("rounds"), content.get("evaluate", {}).get("every")
    return not content["budget"].keys() <= BUDGETS or not rounds or (every or 0) < rounds


class PrefixStore(SilentProgress):
    """Begins a run at the last whole round that its budget allows of those that are kept in
    `folder`, and keeps its own last.

    What the run then has not released itself it has from there: its ledgers are debited for all of
    it before it goes on.
    """

    def __init__(self, folder: Path, tau: int) -> None:
        self._folder, self._tau = folder, tau
        self._job: Any = None
        self._last: RunState | None = None
        self.begun = 0
        """Rounds that were made before."""

    def start(self, job: Any) -> None:
        self._job, state = job, job.coordinator.state
        most = min(job.budget.rounds or 0, min(state.remaining) // self._tau)
        kept = [path.parent.name for path in self._folder.glob("*/checkpoint.safetensors")]
        self.begun = max(
            (int(name) for name in kept if name.isdigit() and int(name) <= most), default=0
        )
        if (
            not self.begun or job.algorithm.before
        ):  # what is asked before the first round may follow the budget
            self.begun = 0
            return
        there = self._state(state)
        self._pay(there.iterations)
        left = [count - there.iterations for count in state.remaining]
        for part in fields(RunState):
            setattr(state, part.name, getattr(there, part.name))
        state.remaining = left

    def _state(self, fresh: RunState) -> RunState:
        """As it was kept; refused where it is not of so many whole rounds, which is what is paid
        for.
        """
        folder = RunFolder(self._folder / str(self.begun))
        try:
            there = folder.load_checkpoint(fresh)
            if (there.round, there.iterations) != (self.begun, self.begun * self._tau):
                raise DpflError("it is of another round")
            return there
        except DpflError as error:
            raise DpflError(
                f"The beginning in {folder.path} is not as it was left ({error}): remove it."
            ) from None

    def _pay(self, releases: int) -> None:
        job, name = self._job, f"{self._folder.name}, {releases} steps"
        for number in range(len(job.accounts.ledgers)):
            with closing(job.accounts.ledgers.open(number)) as ledger:
                ledger.debit(job.run, name, job.accounts.event, releases, job.accounts.limit)

    def with_rounds_before(self, series: Series) -> Series:
        """Curves of all rounds: those that were made before had the same tau, and nobody looked at
        them here.
        """
        missing = range(1, int(series["round"][0] or 0))
        before: dict[str, list[float | None]] = {
            "round": list(missing),
            "tau": [self._tau] * len(missing),
        }
        return {
            name: [*before.get(name, [None] * len(missing)), *values]
            for name, values in series.items()
        }

    def tell(self, row: RoundRow) -> None:
        if row.steps == self._tau and not self._job.algorithm.before:
            state = self._job.coordinator.state
            self._last = replace(state, remaining=list(state.remaining), paid=list(state.paid))

    def stop(self) -> None:
        if self._last and self._last.round > self.begun:
            self._keep(self._last)
        self._job = self._last = (
            None  # else the run and who watches it would hold each other, and the data, in memory
        )

    def _keep(self, state: RunState) -> None:
        """What cannot be kept is made again."""
        folder = self._folder / str(state.round)
        with suppress(OSError, DpflError):
            folder.mkdir(parents=True, exist_ok=True)
            RunFolder(folder).save_checkpoint(state)
