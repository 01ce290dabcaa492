"""A run as TensorBoard reads it: event files in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfl.errors import DpflError
from dpfl.loggers.scalars import flat, scalars, told, writable
from dpfl.run.callbacks import Callback, RunStart
from dpfl.run.metrics import RoundRow

if TYPE_CHECKING:
    from dpfl.run.result import Result


class TensorBoard(Callback):
    """Scalars of every round and the statement as text; `tensorboard --logdir FOLDER` shows
    them.
    """

    def __init__(self, folder: Path | str = "runs/tensorboard") -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise DpflError(
                "TensorBoard is not installed: pip install 'dpfl[tensorboard]', or leave the "
                "logger out."
            ) from None
        self._folder, self._writer = writable(Path(folder)), SummaryWriter
        self._held: Any = None

    def started(self, run: RunStart) -> None:
        """Rounds that are made again after a crash replace what was shown of them."""
        again = {"purge_step": run.rounds_done + 1} if run.rounds_done else {}
        self._held = self._writer(str(self._folder / run.folder.name), **again)
        settings = "\n".join(f"    {name} = {value}" for name, value in flat(run.settings).items())
        self._held.add_text("settings", settings, run.rounds_done)

    def round(self, row: RoundRow) -> None:
        for name, value in scalars(row).items():
            self._held.add_scalar(name, value, row.round)

    def ended(self, result: Result) -> None:
        self._held.add_text("statement", told(result), result.rounds)
        self._held.close()

    def broken_off(self) -> None:
        if self._held is not None:
            self._held.close()
