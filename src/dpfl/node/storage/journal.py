"""The node's log file: one JSON object per line, with words, counts and times and nothing of the
data.
"""

from __future__ import annotations

import datetime
import json
import os
import traceback
from pathlib import Path
from typing import Any

from dpfl.errors import DpflError

MOST_BYTES = 10 << 20
"""Bytes of a log file before the next one is begun."""
OLDER_FILES = 4
"""How many older files are kept, as `node.log.1` and so on."""


class Journal:
    """Writes the log. A full file becomes an older one, and the oldest is deleted, so that nobody
    can fill a disk with log lines.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("a")
        except OSError as error:
            raise DpflError(
                f"The log {path} cannot be written ({error.strerror}); fix its folder."
            ) from error

    def write(self, event: str, **words: Any) -> None:
        """Appends a line. If the disk is full, the line is lost, and nothing else.

        Args:
            event: What happened.
            **words: Details that JSON can hold.
        """
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        try:
            if self._file.closed:  # there was no room for a new file the last time
                self._file = self.path.open("a")
            if self._file.tell() > MOST_BYTES:
                self._rotate()
            self._file.write(json.dumps({"at": now, "event": event, **words}) + "\n")
            self._file.flush()
        except OSError:
            return

    def failure(self, error: BaseException, **words: Any) -> None:
        """Appends where an error happened and of which type it is.

        The text of an error may quote data. It is written only where it is one of dpfl's own
        sentences, which do not.

        Args:
            error: The error.
            **words: Details that JSON can hold.
        """
        frames = traceback.extract_tb(error.__traceback__)
        places = [
            f"{os.path.basename(frame.filename)}:{frame.lineno} {frame.name}"
            for frame in frames[-8:]
        ]
        text = {"text": str(error)[:500]} if isinstance(error, DpflError) else {}
        self.write("failed", **words, error=type(error).__name__, places=places, **text)

    def _rotate(self) -> None:
        self._file.close()
        for number in range(OLDER_FILES - 1, 0, -1):
            older = self.path.with_name(f"{self.path.name}.{number}")
            if older.exists():
                older.replace(self.path.with_name(f"{self.path.name}.{number + 1}"))
        self.path.replace(self.path.with_name(f"{self.path.name}.1"))
        self._file = self.path.open("a")

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
