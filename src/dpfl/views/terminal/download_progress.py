"""A download as it goes: bytes, and how many a second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn


class ProgressBar:
    """A bar of rich that can be told as one of tqdm."""

    def __init__(self, progress: Progress, name: str) -> None:
        self._progress = progress
        self._task = progress.add_task(name, total=None)
        self.total = 0

    def update(self, count: int) -> None:
        self._progress.update(self._task, total=self.total, advance=count)

    def reset(self) -> None:
        self._progress.reset(self._task)

    def close(self) -> None:
        self._progress.stop()


@contextmanager
def watch(name: str) -> Iterator[ProgressBar]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns) as progress:
        yield ProgressBar(progress, name)
