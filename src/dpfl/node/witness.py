"""A file on other storage to which a node appends every head that it signs, before the reply
leaves.

Whoever sets back the node's own disk does not set back this file, so the node sees what it lost
without any server's help. A copy of the node that writes to the same file is seen by the first line
that the other did not write.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

from dpfl.codec import canonical
from dpfl.errors import DpflError
from dpfl.protocol.ledger_head import MOST_OWN, HeadSet, SignedHead, head_from_words
from dpfl.refusals import ProtocolError, RefusalReason

NOTE = "node/witness"
"""The row by which a ledger knows that there was one."""


class Witness:
    """Of the node with this public key. `heads` reads it, `check` and `append` are for a node at
    work.
    """

    def __init__(self, path: Path, public_key: str) -> None:
        self.path, self._public_key = path, public_key
        self._size: int | None = None

    def heads(self) -> HeadSet:
        """What this node signed, by the file; a last line that was broken off is none.

        Raises:
            DpflError: The file cannot be read, or holds something else.
        """
        found = HeadSet(most=MOST_OWN)
        if not self.path.exists():
            return found
        try:
            *lines, last = self.path.read_bytes().split(b"\n")
        except OSError as error:
            raise self._unusable(error.strerror or "unknown") from error
        for number, line in enumerate([*lines, *([last] if last else [])]):
            try:
                one = head_from_words(json.loads(line))
            except (ValueError, RecursionError, ProtocolError) as error:
                if line is last:
                    continue
                raise self._unusable(f"line {number + 1} is not a head") from error
            if one.head.public_key == self._public_key:
                found.add(one)
        return found

    def begin(self, first: SignedHead) -> None:
        """The line of this start; from now on nobody else writes here."""
        self._size = None
        self.append(first)

    def check(self) -> None:
        """Refused, before anything is debited, where somebody else wrote since, or the file cannot
        be reached.
        """
        try:
            size = self.path.stat().st_size
        except OSError as error:
            raise self._unusable(error.strerror or "unknown") from error
        if size != self._size:
            raise ProtocolError(RefusalReason.ROLLED_BACK)

    def append(self, one: SignedHead) -> None:
        """A line more; on disk when this returns."""
        line = canonical(one.to_words()) + b"\n"
        try:
            with self.path.open("ab") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                size = file.seek(0, os.SEEK_END)
                if self._size is not None and size != self._size:
                    raise ProtocolError(RefusalReason.ROLLED_BACK)
                if self._size is None:
                    size = file.truncate(self._whole())
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
                self._size = size + len(line)
        except OSError as error:
            raise self._unusable(error.strerror or "unknown") from error

    def _whole(self) -> int:
        """Bytes up to the end of the last line that is whole; the rest was broken off, and its
        reply never left.
        """
        return self.path.read_bytes().rfind(b"\n") + 1

    def _unusable(self, why: str) -> DpflError:
        return DpflError(
            f"The witness {self.path} cannot be used ({why}); mend its storage, or take `witness` "
            "out of the policy."
        )
