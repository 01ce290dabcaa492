"""Callbacks: a user's own code that follows a run. It gets what was released and what is public,
and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfl.deprecation import deprecated_names, keep_old_names, override_renamed_methods
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
"""Settings of the resolved experiment that callbacks get. The seed is not among them, because it
would let the noise be drawn again, and neither are names of clients.
"""


@dataclass(frozen=True)
class RunStart:
    """A run before its first round, or before the first round after it was resumed.

    Attributes:
        run: The name of the run in ledgers and certificates. A resumed run keeps its name.
        folder: The run's folder.
        settings: The public settings of the experiment.
        rounds_done: How many rounds were made before a crash or a stop.
    """

    run: str
    folder: Path
    settings: Mapping[str, Any]
    rounds_done: int = 0

    @classmethod
    def of(cls, job: PreparedRun) -> RunStart:
        """Describes a run that is about to start.

        Args:
            job: The run.

        Returns:
            What callbacks may know of it.
        """
        resolved_section = job.folder.experiment()["resolved"]
        settings = {name: resolved_section[name] for name in PUBLIC if name in resolved_section}
        return cls(job.run, job.folder.path, settings, job.coordinator.state.round)


OLD_METHODS = {
    "started": "on_start",
    "round": "on_round",
    "ended": "on_end",
    "broken_off": "on_interruption",
}
"""The new name of each method that a callback of version 0.1 may have."""


@keep_old_names(**OLD_METHODS)
class Callback:
    """Follows a run. A subclass overrides the methods that it needs.

    After an exception in one of its methods, a callback is not called again. The run goes on, and
    its result has a warning.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        override_renamed_methods(cls, OLD_METHODS)

    def on_start(self, run: RunStart) -> None:
        """Is called before the first round.

        Args:
            run: The run with its public settings.
        """

    def on_round(self, row: RoundRow) -> None:
        """Is called after every round, once its checkpoint is on disk.

        No round is reported twice. After a crash in this very moment, one round may never be
        reported.

        Args:
            row: The round with its metrics.
        """

    def on_end(self, result: Result) -> None:
        """Is called at the end, when everything is in the run's folder.

        Args:
            result: The outcome of the run.
        """

    def on_interruption(self) -> None:
        """Is called in the place of `on_end` if an error or the user ends the run early.

        The run may be resumed.
        """


class CallbackProgress:
    """A display of the run's progress, with callbacks that follow the run as well.

    Attributes:
        faults: A sentence for each callback that failed.
    """

    def __init__(self, display: Progress, callbacks: Sequence[Callback]) -> None:
        self._display, self._callbacks = display, list(callbacks)
        self._has_begun = False
        self.faults: list[str] = []

    def start(self, job: PreparedRun) -> None:
        """Shows that the run starts.

        Args:
            job: The run before its first round.
        """
        self._display.start(job)
        self._has_begun = bool(self._callbacks)
        if self._has_begun:
            start = RunStart.of(job)
            self._tell("on_start", lambda callback: callback.on_start(start))

    def tell(self, row: RoundRow) -> None:
        """Shows a round.

        Args:
            row: The round with its metrics.
        """
        self._tell("on_round", lambda callback: callback.on_round(row))
        self._display.tell(row)

    def stop(self) -> None:
        """Ends the display. `report_end` or `closing` tells the callbacks of the end."""
        self._display.stop()

    def report_end(self, result: Result) -> None:
        """Tells the callbacks that the run has ended.

        Args:
            result: The outcome of the run.
        """
        self._tell("on_end", lambda callback: callback.on_end(result))

    def closing(self, kind: type[BaseException] | None, *_: object) -> None:
        """Tells the callbacks of a run that was broken off. It is the exit of an `ExitStack`.

        Where a run was refused before its start, the callbacks never heard of it.

        Args:
            kind: The class of the error that ended the run; None if there was none.
        """
        if kind and self._has_begun:
            self._tell("on_interruption", lambda callback: callback.on_interruption())

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


if not TYPE_CHECKING:
    __getattr__ = deprecated_names(__name__, {"Started": "RunStart"})
