"""The progress of a run in a terminal: round, tau, first metric, epsilon, clients, time left."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from dpfl.privacy.statement import rounded_up
from dpfl.run.metrics import RoundRow, figure


class LiveProgress:
    """A progress bar on a terminal; elsewhere, one line per evaluation."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._figure = "accuracy -"
        self.bar: Progress | None = None

    def start(self, job: Any) -> None:
        """Prints the notes of a run and begins the bar.

        Args:
            job: The prepared run.
        """
        state, budget = job.coordinator.state, job.budget
        self._limit_text = (
            ""
            if budget.epsilon is None or not job.algorithm.has_noise
            else f" of {budget.epsilon:g}"
        )
        total = budget.rounds or _rounds_left(job)
        for note in job.notes:
            self._console.print(f"[dim]{note}[/dim]")
        for note in job.data.private:
            self._console.print(
                f"[dim]{note} (shown only to the owner of the data, and stored nowhere)[/dim]"
            )
        test = job.recorder.test
        self._total, self._every = total, None if test else job.recorder.every
        self._headline = test.task.headline if test else "accuracy"
        self._figure = f"{self._headline} -"
        if not self._console.is_terminal:
            return
        columns = (
            TextColumn("round"),
            MofNCompleteColumn(),
            BarColumn(bar_width=20),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self.bar = Progress(*columns, console=self._console)
        self.bar.start()
        self._task = self.bar.add_task("starting the clients", total=total, completed=state.round)

    def tell(self, row: RoundRow) -> None:
        """Shows a finished round.

        Args:
            row: The round.
        """
        if row.headline is not None:
            self._figure = figure(self._headline, row.headline)
        epsilon = (
            ""
            if row.epsilon is None
            else f"  epsilon used <= {rounded_up(row.epsilon, 2):.2f}{self._limit_text}"
        )
        metric_text = "" if self._every else f"  {self._figure}"
        text = f"tau {row.steps}{metric_text}{epsilon}  clients {row.clients}"
        if self.bar:
            self.bar.update(self._task, completed=row.round, description=text)
        elif row.loss is not None or (self._every and row.round % self._every == 0):
            end = f"/{self._total}" if self._total else ""
            self._console.print(
                f"round {row.round}{end}  {text}  {row.seconds:.0f} s", highlight=False
            )

    def stop(self) -> None:
        """Stops the bar, however the run ended."""
        if self.bar:
            self.bar.stop()


def _rounds_left(job: Any) -> int | None:
    """Counts the rounds that epsilon allows, where the budget does not limit rounds."""
    remaining = max(job.coordinator.state.remaining, default=0)
    steps = job.algorithm.releases_in(1)
    rounds = -(-remaining // steps)
    return rounds if 0 < rounds < 1_000_000 else None
