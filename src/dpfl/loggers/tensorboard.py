"""Writes a run for TensorBoard: event files in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfl.errors import DpflError
from dpfl.loggers.scalars import check_writable, flat, scalars, statement_text
from dpfl.run.callbacks import Callback, RunStart
from dpfl.run.metrics import RoundRow

if TYPE_CHECKING:
    from dpfl.run.result import Result


class TensorBoard(Callback):
    """Writes scalars of every round, and the privacy statement as text.

    `tensorboard --logdir FOLDER` shows them.
    """

    def __init__(self, folder: Path | str = "runs/tensorboard") -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise DpflError(
                "TensorBoard is not installed: pip install 'dpfl[tensorboard]', or remove the "
                "logger."
            ) from None
        self._folder, self._writer = check_writable(Path(folder)), SummaryWriter
        self._open_writer: Any = None

    def on_start(self, run: RunStart) -> None:
        """Opens the folder of a run. Rounds repeated after a crash replace the old ones."""
        again = {"purge_step": run.rounds_done + 1} if run.rounds_done else {}
        self._open_writer = self._writer(str(self._folder / run.folder.name), **again)
        settings = "\n".join(f"    {name} = {value}" for name, value in flat(run.settings).items())
        self._open_writer.add_text("settings", settings, run.rounds_done)

    def on_round(self, row: RoundRow) -> None:
        for name, value in scalars(row).items():
            self._open_writer.add_scalar(name, value, row.round)

    def on_end(self, result: Result) -> None:
        self._open_writer.add_text("statement", statement_text(result), result.rounds)
        self._open_writer.close()

    def on_interruption(self) -> None:
        if self._open_writer is not None:
            self._open_writer.close()
