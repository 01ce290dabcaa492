"""Locks a run's folder. Two processes at one run would both spend its budget."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from dpfl.errors import DpflError

PATIENCE = 30.0
"""Seconds that a run waits for processes that only ask whether it is under way. They share its lock
for a moment, which is long on a busy machine."""
INTERVAL = 0.02
"""Seconds from one attempt to the next."""


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Holds the lock of a run. The file says which process holds it.

    Args:
        path: The lock file, in the run's folder.

    Yields:
        Nothing; the lock is held until the end of the block.

    Raises:
        DpflError: Another process holds the lock.
    """
    with path.open("ab") as file:
        _acquire(file, path.parent)
        file.truncate(0)
        file.write(str(os.getpid()).encode())
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def read_owner(path: Path) -> int | None:
    """Finds the process that holds the lock of a run.

    A process that holds the lock has not ended, so its number is nobody else's.

    Args:
        path: The lock file.

    Returns:
        The number of the process; None where nobody holds the lock.
    """
    try:
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                number = int(file.read(20) or b"0")
                return number if number > 1 else None
    except (OSError, ValueError):
        pass
    return None


def _acquire(file: BinaryIO, folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if not _is_shared(file) or time.monotonic() >= deadline:
                raise DpflError(
                    f"Another process works on the run in {folder} ({error.strerror}); wait until "
                    "it ends, then resume the run."
                ) from error
        time.sleep(INTERVAL)


def _is_shared(file: BinaryIO) -> bool:
    """Says whether all who hold the lock share it. Such processes ask whether a run is under way,
    and none of them runs it.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return True
