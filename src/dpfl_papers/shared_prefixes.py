"""Runs that start alike. Where tau and the noise are fixed, the budget decides only where training
ends. So a longer run can continue where a shorter one ended, and gives bit for bit the result of
a run from the start.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from dpfl.errors import DpflError
from dpfl.run.metrics import RoundRow
from dpfl.run.recorder import SilentProgress
from dpfl.run.records.digests import code_sha256
from dpfl.run.records.folder import RunFolder
from dpfl.server.state import RunState

Series = Mapping[str, Sequence[float | None]]

COURSE_SECTIONS, END_SECTIONS = {"data", "model", "algorithm"}, {"budget", "evaluate"}
"""Sections that decide how a run proceeds; when it ends and what is evaluated.

A run with other sections, such as ledgers or entropy of its own, shares no prefix.
"""
BUDGETS = {"epsilon", "delta", "rounds"}
"""Limits that fix the number of whole rounds before the run starts."""


def prefix_key(content: Mapping[str, Any], seed: int) -> str:
    """Computes a key of how a run proceeds, whatever its length.

    Args:
        content: Sections of the experiment file.
        seed: Seed of the run.

    Returns:
        24 hexadecimal digits, equal for runs of which the shorter is a prefix of the longer. Empty
        if no other run can start like this one.
    """
    algorithm = content.get("algorithm", {})
    is_fixed = (
        algorithm.get("name") == "fedavg-dp" and {"tau", "noise_multiplier"} <= algorithm.keys()
    )
    if (
        not is_fixed
        or not content.keys() <= COURSE_SECTIONS | END_SECTIONS
        or _ends_early_or_is_observed(content)
    ):
        return ""
    course = {name: section for name, section in content.items() if name in COURSE_SECTIONS}
    return hashlib.sha256(
        json.dumps([course, seed, code_sha256()], sort_keys=True).encode()
    ).hexdigest()[:24]


def _ends_early_or_is_observed(content: Mapping[str, Any]) -> bool:
    """Tells whether the model is evaluated before the end, or the end is not known in advance."""
    rounds, every = content["budget"].get("rounds"), content.get("evaluate", {}).get("every")
    return not content["budget"].keys() <= BUDGETS or not rounds or (every or 0) < rounds


class PrefixStore(SilentProgress):
    """Continues a run from a stored checkpoint, and stores the run's own last whole round.

    It takes the latest stored round that the budget of the run allows. The run did not make those
    releases itself, so its ledgers are debited for all of them before it continues.

    Attributes:
        resumed_round: Number of rounds that an earlier run made.
    """

    def __init__(self, folder: Path, tau: int) -> None:
        self._folder, self._tau = folder, tau
        self._job: Any = None
        self._last: RunState | None = None
        self.resumed_round = 0
        """Rounds that were made before."""

    def start(self, job: Any) -> None:
        """Loads the latest checkpoint that the budget allows.

        Args:
            job: The prepared run.

        Raises:
            DpflError: If the checkpoint is damaged.
        """
        self._job, state = job, job.coordinator.state
        most = min(job.budget.rounds or 0, min(state.remaining) // self._tau)
        rounds = [path.parent.name for path in self._folder.glob("*/checkpoint.safetensors")]
        self.resumed_round = max(
            (int(name) for name in rounds if name.isdigit() and int(name) <= most), default=0
        )
        if (
            not self.resumed_round or job.algorithm.query_spending
        ):  # queries before the first round may depend on the budget
            self.resumed_round = 0
            return
        stored_state = self._state(state)
        self._pay(stored_state.iterations)
        remaining = [count - stored_state.iterations for count in state.remaining]
        for part in fields(RunState):
            setattr(state, part.name, getattr(stored_state, part.name))
        state.remaining = remaining

    def _state(self, fresh: RunState) -> RunState:
        """Loads the checkpoint.

        It is refused unless it has exactly as many whole rounds as the ledgers are debited for.
        """
        folder = RunFolder(self._folder / str(self.resumed_round))
        try:
            stored_state = folder.load_checkpoint(fresh)
            if (stored_state.round, stored_state.iterations) != (
                self.resumed_round,
                self.resumed_round * self._tau,
            ):
                raise DpflError("it is of another round")
            return stored_state
        except DpflError as error:
            raise DpflError(
                f"The checkpoint in {folder.path} is damaged ({error}): remove it."
            ) from None

    def _pay(self, releases: int) -> None:
        job, name = self._job, f"{self._folder.name}, {releases} steps"
        for number in range(len(job.accounts.ledgers)):
            with closing(job.accounts.ledgers.open(number)) as ledger:
                ledger.debit(job.run, name, job.accounts.event, releases, job.accounts.limit)

    def with_earlier_rounds(self, series: Series) -> Series:
        """Completes the series of a run.

        Args:
            series: Series of the rounds that this run made.

        Returns:
            Series of all rounds. Earlier rounds had the same tau, and were not evaluated.
        """
        missing = range(1, int(series["round"][0] or 0))
        earlier: dict[str, list[float | None]] = {
            "round": list(missing),
            "tau": [self._tau] * len(missing),
        }
        return {
            name: [*earlier.get(name, [None] * len(missing)), *values]
            for name, values in series.items()
        }

    def tell(self, row: RoundRow) -> None:
        """Notes the state after a whole round.

        Args:
            row: Figures of the round.
        """
        if row.steps == self._tau and not self._job.algorithm.query_spending:
            state = self._job.coordinator.state
            self._last = replace(state, remaining=list(state.remaining), debits=list(state.debits))

    def stop(self) -> None:
        """Stores the last whole round, unless it was loaded."""
        if self._last and self._last.round > self.resumed_round:
            self._keep(self._last)
        self._job = self._last = (
            None  # breaks the cycle of run and watcher, which would keep the data in memory
        )

    def _keep(self, state: RunState) -> None:
        """Stores a checkpoint. If the disk refuses, later runs start from the beginning."""
        folder = self._folder / str(state.round)
        with suppress(OSError, DpflError):
            folder.mkdir(parents=True, exist_ok=True)
            RunFolder(folder).save_checkpoint(state)
