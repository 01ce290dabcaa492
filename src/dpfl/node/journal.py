"""What a node did, a JSON object a line: words, counts and times, and nothing of its data."""

from __future__ import annotations

import datetime
import json
import os
import traceback
from pathlib import Path
from typing import Any

from dpfl.errors import DpflError

MOST_BYTES = 10 << 20
KEPT = 4
"""Older files, as node.log.1 and so on."""


class Journal:
    """Written line by line; a full file becomes an older one, and the oldest goes, so that nobody
    can fill a disk with it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("a")
        except OSError as error:
            raise DpflError(
                f"The log {path} cannot be written ({error.strerror}); mend its folder."
            ) from error

    def write(self, event: str, **words: Any) -> None:
        """A disk that is full costs the line, and nothing else."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        try:
            if self._file.closed:  # there was no room for a new one the last time
                self._file = self.path.open("a")
            if self._file.tell() > MOST_BYTES:
                self._turn()
            self._file.write(json.dumps({"at": now, "event": event, **words}) + "\n")
            self._file.flush()
        except OSError:
            return

    def failure(self, error: BaseException, **words: Any) -> None:
        """Where it happened and of what kind; the text only where it is one of our own sentences,
        which quote no data.
        """
        frames = traceback.extract_tb(error.__traceback__)
        places = [
            f"{os.path.basename(frame.filename)}:{frame.lineno} {frame.name}"
            for frame in frames[-8:]
        ]
        said = {"text": str(error)[:500]} if isinstance(error, DpflError) else {}
        self.write("failed", **words, error=type(error).__name__, places=places, **said)

    def _turn(self) -> None:
        self._file.close()
        for number in range(KEPT - 1, 0, -1):
            older = self.path.with_name(f"{self.path.name}.{number}")
            if older.exists():
                older.replace(self.path.with_name(f"{self.path.name}.{number + 1}"))
        self.path.replace(self.path.with_name(f"{self.path.name}.1"))
        self._file = self.path.open("a")

    def close(self) -> None:
        self._file.close()
