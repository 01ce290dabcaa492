"""The heads of ledgers that a node remembers, in `heads.json` in its folder.

- Heads of its own that its ledger lacks: its owner has to reconcile them.
- The last heads of the nodes that it works beside. It shows them to whoever asks it to join a run
  with the same nodes, so that what one server forgets another learns.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from dpfl.codec import canonical
from dpfl.errors import DpflError
from dpfl.protocol.head_words import head_from_words
from dpfl.protocol.ledger_head import MOST_OWN, HeadSet, SignedHead
from dpfl.refusals import ProtocolError

FILE = "heads.json"
MOST_OTHERS = 128
"""Nodes whose heads are kept for each owner of runs. The limit is per owner, so no owner can push
out what another showed.
"""
LARGEST = 1 << 14
"""Bytes of the head of another node."""


class KnownHeads:
    """The file `heads.json` of a node's folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self.own: list[SignedHead] = []
        """Heads that this node signed, and that its ledger lacked when they were shown."""
        self._others: dict[str, dict[str, SignedHead]] = {}
        try:
            words = (
                json.loads(self._path.read_text())
                if self._path.exists()
                else {"own": [], "others": {}}
            )
            self.own = [head_from_words(signed_head) for signed_head in words["own"]]
            for owner, heads in words["others"].items():
                self._others[owner] = {
                    name: head_from_words(signed_head) for name, signed_head in heads.items()
                }
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
                f"The heads {self._path} cannot be read ({error}); restore them from a copy, or "
                "remove them if servers "
                "that remember this node are still there."
            ) from error

    def keep_own(self, heads: Iterable[SignedHead]) -> None:
        """Remembers heads that the ledger lacks. They are on disk when this returns.

        Args:
            heads: Heads that this node signed.
        """
        own = HeadSet(most=MOST_OWN)
        for signed_head in (*self.own, *heads):
            own.add(signed_head)
        self.own = list(own)
        self._save()

    def forget_own(self) -> None:
        """Forgets the node's own heads, after the ledger has counted them."""
        if self.own:
            self.own = []
            self._save()

    def keep_others(self, owner: str, heads: Iterable[SignedHead]) -> None:
        """Remembers what an owner of runs shows of other nodes. What it showed first goes first.

        Args:
            owner: The public key of the owner.
            heads: Heads of nodes of the owner's runs.
        """
        by_node = self._others.setdefault(owner, {})
        before = dict(by_node)
        for signed_head in heads:
            if len(canonical(signed_head.to_words())) <= LARGEST:
                by_node.pop(signed_head.head.node, None)
                by_node[signed_head.head.node] = signed_head
        for name in list(by_node)[:-MOST_OTHERS]:
            del by_node[name]
        if by_node != before:
            self._save()

    def others(self, names: Collection[str]) -> list[SignedHead]:
        """Lists the heads of some nodes, whoever showed them, each once.

        Args:
            names: The names of the nodes.

        Returns:
            The heads.
        """
        by_signature = {
            signed_head.signature: signed_head
            for heads in self._others.values()
            for name, signed_head in heads.items()
            if name in names
        }
        return list(by_signature.values())

    def _save(self) -> None:
        others = {
            owner: {name: signed_head.to_words() for name, signed_head in heads.items()}
            for owner, heads in self._others.items()
        }
        write_whole(
            self._path,
            {"own": [signed_head.to_words() for signed_head in self.own], "others": others},
        )


def write_whole(path: Path, value: Any) -> None:
    """Writes a JSON file that is whole on disk when this returns, or as it was.

    Args:
        path: The file.
        value: What JSON can hold.

    Raises:
        DpflError: The file cannot be written.
    """
    new_path = path.with_name(f"{path.name}.new")
    try:
        with os.fdopen(
            os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w"
        ) as file:
            json.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        new_path.replace(path)
    except OSError as error:
        raise DpflError(f"{path} cannot be written ({error.strerror}); fix its folder.") from error
