"""The witness: a file on other storage to which a node appends every head that it signs.

A head is appended before the reply leaves. Whoever sets back the node's own disk does not set back
this file, so the node finds out what it lost without any server's help. Two copies of a node that
share a witness find each other out by the first line that the other one wrote.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

from dpfl.codec import canonical
from dpfl.errors import DpflError
from dpfl.protocol.head_words import head_from_words
from dpfl.protocol.ledger_head import MOST_OWN, HeadSet, SignedHead
from dpfl.refusals import ProtocolError, RefusalReason

NOTE = "node/witness"
"""The note in a ledger that says that there was a witness."""


class Witness:
    """The witness file of one node.

    `heads` reads it. `begin`, `check` and `append` are for a running node.
    """

    def __init__(self, path: Path, public_key: str) -> None:
        self.path, self._public_key = path, public_key
        self._size: int | None = None
        """Bytes of the file after this process wrote last."""

    def heads(self) -> HeadSet:
        """Reads what this node signed.

        Returns:
            The furthest heads. A last line that was cut off is left out: its reply never left.

        Raises:
            DpflError: The file cannot be read, or holds something else.
        """
        heads = HeadSet(most=MOST_OWN)
        if not self.path.exists():
            return heads
        try:
            *lines, last = self.path.read_bytes().split(b"\n")
        except OSError as error:
            raise self._unusable(error.strerror or "unknown") from error
        for number, line in enumerate([*lines, *([last] if last else [])]):
            try:
                signed_head = head_from_words(json.loads(line))
            except (ValueError, RecursionError, ProtocolError) as error:
                if line is last:
                    continue
                raise self._unusable(f"line {number + 1} is not a head") from error
            if signed_head.head.public_key == self._public_key:
                heads.add(signed_head)
        return heads

    def begin(self, first: SignedHead) -> None:
        """Appends the first head of a start. From now on nobody else may write to the file.

        Args:
            first: The head as it is now.

        Raises:
            DpflError: The file cannot be written.
        """
        self._size = None
        self.append(first)

    def check(self) -> None:
        """Compares the file with what this process left, before anything is debited.

        Raises:
            ProtocolError: Somebody else wrote to the file since (`ROLLED_BACK`).
            DpflError: The file cannot be reached.
        """
        try:
            size = self.path.stat().st_size
        except OSError as error:
            raise self._unusable(error.strerror or "unknown") from error
        if size != self._size:
            raise ProtocolError(RefusalReason.ROLLED_BACK)

    def append(self, signed_head: SignedHead) -> None:
        """Appends a head. It is on disk when this returns.

        Args:
            signed_head: The head.

        Raises:
            ProtocolError: Somebody else wrote to the file since (`ROLLED_BACK`).
            DpflError: The file cannot be written.
        """
        line = canonical(signed_head.to_words()) + b"\n"
        try:
            with self.path.open("ab") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                size = file.seek(0, os.SEEK_END)
                if self._size is not None and size != self._size:
                    raise ProtocolError(RefusalReason.ROLLED_BACK)
                if self._size is None:
                    size = file.truncate(self._whole_bytes())
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
                self._size = size + len(line)
        except OSError as error:
            raise self._unusable(error.strerror or "unknown") from error

    def _whole_bytes(self) -> int:
        """Counts the bytes up to the end of the last whole line. The rest was cut off, and its
        reply never left.
        """
        return self.path.read_bytes().rfind(b"\n") + 1

    def _unusable(self, why: str) -> DpflError:
        return DpflError(
            f"The witness {self.path} cannot be used ({why}); fix its storage, or take `witness` "
            "out of the policy."
        )
