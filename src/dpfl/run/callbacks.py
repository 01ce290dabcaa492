"""Whoever is told of a run as it goes, beside the terminal: what was released and what is public,
and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfl.run.metrics import RoundRow
from dpfl.run.recorder import Progress

if TYPE_CHECKING:
    from dpfl.run.prepare import PreparedRun
    from dpfl.run.result import Result

PUBLIC = (
    "algorithm",
    "model",
    "model_options",
    "budget",
    "clients",
    "partition",
    "accountant",
    "noise",
    "entropy",
)
"""Of the experiment as it came to be. Neither the seed, by which noise can be drawn again, nor
names of clients.
"""


@dataclass(frozen=True)
class RunStart:
    """A run before its first round, or before the first after a crash."""

    run: str
    """Its name in ledgers and certificates; a run that is resumed keeps it."""
    folder: Path
    settings: Mapping[str, Any]
    rounds_done: int = 0

    @classmethod
    def of(cls, job: PreparedRun) -> RunStart:
        resolved = job.folder.experiment()["resolved"]
        settings = {name: resolved[name] for name in PUBLIC if name in resolved}
        return cls(job.run, job.folder.path, settings, job.coordinator.state.round)


class Callback:
    """To be overridden where something is to be done; a method that raises is not called again, and
    the run goes on.
    """

    def started(self, run: RunStart) -> None:
        """Before the first round."""

    def round(self, row: RoundRow) -> None:
        """After every round, when it is kept; none is told twice, and a crash just then may cost
        the telling of one.
        """

    def ended(self, result: Result) -> None:
        """With everything that is in the run's folder by then."""

    def broken_off(self) -> None:
        """Instead of `ended`, where an error or the user came between; the run may be resumed."""


class CallbackProgress:
    """The progress of a run that callbacks follow, too."""

    def __init__(self, shown: Progress, callbacks: Sequence[Callback]) -> None:
        self._shown, self._callbacks = shown, list(callbacks)
        self._begun = False
        self.faults: list[str] = []

    def start(self, job: PreparedRun) -> None:
        self._shown.start(job)
        self._begun = bool(self._callbacks)
        if self._begun:
            started = RunStart.of(job)
            self._tell("started", lambda callback: callback.started(started))

    def tell(self, row: RoundRow) -> None:
        self._tell("round", lambda callback: callback.round(row))
        self._shown.tell(row)

    def stop(self) -> None:
        self._shown.stop()

    def ended(self, result: Result) -> None:
        self._tell("ended", lambda callback: callback.ended(result))

    def closing(self, kind: type[BaseException] | None, *_: object) -> None:
        """At the end of the run, with the error that broke it off; of a run that was refused at its
        start nobody was told.
        """
        if kind and self._begun:
            self._tell("broken_off", lambda callback: callback.broken_off())

    def _tell(self, what: str, call: Callable[[Any], None]) -> None:
        for callback in tuple(self._callbacks):
            try:
                call(callback)
            except Exception as error:
                self._callbacks.remove(callback)
                cause = str(error).splitlines()[0][:200] if str(error) else ""
                name = f"{type(callback).__name__}.{what}"
                self.faults.append(
                    f"{name} failed ({type(error).__name__}: {cause}) and was told nothing more."
                )
