"""The progress of a download in a terminal: bytes, and bytes per second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn


class ProgressBar:
    """A progress bar of rich with the methods that pooch calls on one of tqdm."""

    def __init__(self, progress: Progress, name: str) -> None:
        self._progress = progress
        self._task = progress.add_task(name, total=None)
        self.total = 0

    def update(self, count: int) -> None:
        """Advances the bar, up to the present `total`.

        Args:
            count: Bytes that have arrived since the last call.
        """
        self._progress.update(self._task, total=self.total, advance=count)

    def reset(self) -> None:
        """Begins again at 0 bytes."""
        self._progress.reset(self._task)

    def close(self) -> None:
        """Stops drawing the bar."""
        self._progress.stop()


@contextmanager
def watch(name: str) -> Iterator[ProgressBar]:
    """Shows a progress bar while a file is downloaded.

    Args:
        name: The name of the file.

    Yields:
        The bar, for the downloader.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns) as progress:
        yield ProgressBar(progress, name)
