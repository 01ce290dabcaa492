"""Heads that a node was shown, on its disk: its own that its ledger lacks, and the last ones of the
nodes that it works beside.

The first are what its owner has to reconcile. The others are shown to whoever asks this node to
join a run with the same nodes, so that what one server forgets another learns.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from dpfl.codec import canonical
from dpfl.errors import DpflError
from dpfl.protocol.ledger_head import MOST_OWN, HeadSet, SignedHead, head_from_words
from dpfl.refusals import ProtocolError

FILE = "heads.json"
MOST_OTHERS = 128
"""Nodes whose heads are kept for one owner of runs: nobody can push out what another brought."""
LARGEST = 1 << 14
"""Bytes of a head of another node."""


class KnownHeads:
    """The file `heads.json` of a node's folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self.own: list[SignedHead] = []
        """Signed by this node, and not in its ledger when they were shown."""
        self._others: dict[str, dict[str, SignedHead]] = {}
        try:
            words = (
                json.loads(self._path.read_text())
                if self._path.exists()
                else {"own": [], "others": {}}
            )
            self.own = [head_from_words(one) for one in words["own"]]
            for owner, heads in words["others"].items():
                self._others[owner] = {name: head_from_words(one) for name, one in heads.items()}
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,
            ProtocolError,
        ) as error:
            raise DpflError(
                f"The heads {self._path} cannot be read ({error}); bring them back from a copy, or "
                "remove them if servers "
                "that remember this node are still there."
            ) from error

    def keep_own(self, heads: Iterable[SignedHead]) -> None:
        """Heads that the ledger lacks; on disk when this returns."""
        kept = HeadSet(most=MOST_OWN)
        for one in (*self.own, *heads):
            kept.add(one)
        self.own = list(kept)
        self._save()

    def forget_own(self) -> None:
        """Once they are counted."""
        if self.own:
            self.own = []
            self._save()

    def keep_others(self, owner: str, heads: Iterable[SignedHead]) -> None:
        """What an owner of runs says of nodes of its own; what it brought before goes first where
        that is too much.
        """
        kept = self._others.setdefault(owner, {})
        before = dict(kept)
        for one in heads:
            if len(canonical(one.to_words())) <= LARGEST:
                kept.pop(one.head.node, None)
                kept[one.head.node] = one
        for name in list(kept)[:-MOST_OTHERS]:
            del kept[name]
        if kept != before:
            self._save()

    def others(self, names: Collection[str]) -> list[SignedHead]:
        """Of these nodes, whoever brought them, each once."""
        found = {
            one.signature: one
            for heads in self._others.values()
            for name, one in heads.items()
            if name in names
        }
        return list(found.values())

    def _save(self) -> None:
        others = {
            owner: {name: one.to_words() for name, one in heads.items()}
            for owner, heads in self._others.items()
        }
        write_whole(self._path, {"own": [one.to_words() for one in self.own], "others": others})


def write_whole(path: Path, value: Any) -> None:
    """A JSON file, whole on disk or as it was."""
    unfinished = path.with_name(f"{path.name}.new")
    try:
        with os.fdopen(
            os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w"
        ) as file:
            json.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        raise DpflError(f"{path} cannot be written ({error.strerror}); mend its folder.") from error
