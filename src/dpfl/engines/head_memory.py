"""Remembers the last heads of nodes' ledgers, from run to run, at the server.

Whenever a server asks a node to join, it shows the node its own heads, so that a node whose disk
was set back notices before it spends anything. Only heads that the node's listed key signed are
remembered.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpfl.errors import DpflError
from dpfl.protocol.head_words import fitting, head_from_words
from dpfl.protocol.known_heads import write_whole
from dpfl.protocol.ledger_head import HeadSet, SignedHead
from dpfl.protocol.messages import SignedMessage
from dpfl.refusals import ProtocolError

FILE = "heads.json"
NEIGHBOURS = 8
"""How many other nodes' heads a node is shown, to keep: those of the nodes after it in the list."""


@dataclass
class HeadMemory:
    """Remembers the heads of some nodes.

    Attributes:
        keys: The nodes' public keys by name.
        path: The file; None to remember in memory only.
    """

    keys: Mapping[str, str]
    path: Path | None = None
    _heads: dict[str, HeadSet] = field(default_factory=dict)
    _accepted_signatures: set[str] = field(default_factory=set)
    """Signatures of heads that their node was shown and has included in a later one."""
    _has_changes: bool = False

    def __post_init__(self) -> None:
        self._read()

    def of(self, name: str) -> list[SignedHead]:
        """Lists the heads of a node.

        Args:
            name: The node.

        Returns:
            The heads that the node signed, the latest first.
        """
        return list(self._heads.get(name, ()))

    def shown_to(self, name: str) -> list[dict[str, Any]]:
        """Chooses what a node is shown when it is asked to join.

        Args:
            name: The node.

        Returns:
            Its own heads and the last ones of its neighbours, as words. Nothing for a node that is
            not known to have signed a head: nodes of earlier versions refuse messages with heads.
        """
        if not self.of(name):
            return []
        names = list(self.keys)
        place = names.index(name)
        others = (names[place + 1 :] + names[:place])[:NEIGHBOURS]
        return fitting([*self.of(name), *(head for other in others for head in self.of(other)[:1])])

    def take(self, name: str, answer: SignedMessage) -> None:
        """Remembers the heads in an answer.

        Args:
            name: The node that answered.
            answer: Its answer: the head of its own ledger, and heads of other nodes that it
                remembers.
        """
        own_head, other_heads = answer.header.get("ledger_head"), answer.header.get("heads")
        for words in [own_head, *(other_heads if isinstance(other_heads, list) else [])]:
            with suppress(ProtocolError):
                self._add(head_from_words(words))

    def accept(
        self, name: str, shown_heads: Iterable[Mapping[str, Any]], answer: SignedMessage
    ) -> None:
        """Forgets the heads that a node was shown before it joined, since its ledger includes
        them: the head in its answer stands for them.

        Args:
            name: The node.
            shown_heads: The heads that it was shown, as words.
            answer: Its answer, with the head of its ledger.
        """
        try:
            last = head_from_words(answer.header.get("ledger_head")).head
        except ProtocolError:
            return  # of an earlier version, which compares nothing
        for signed_head in [
            signed_head
            for signed_head in self.of(name)
            if signed_head.to_words() in shown_heads and signed_head.head.tail != last.tail
        ]:
            self._heads[name].remove(signed_head)
            self._accepted_signatures.add(signed_head.signature)
            self._has_changes = True

    def is_doubtful(self, name: str) -> bool:
        """Decides whether a node has to compare its heads with its ledger.

        Args:
            name: The node.

        Returns:
            Whether there are heads of the node of which none includes the others.
        """
        return len(self.of(name)) > 1

    def _add(self, signed_head: SignedHead) -> None:
        if (
            self.keys.get(signed_head.head.node) == signed_head.head.public_key
            and signed_head.signature not in self._accepted_signatures
        ):
            self._has_changes |= self._heads.setdefault(signed_head.head.node, HeadSet()).add(
                signed_head
            )

    def save(self) -> None:
        """Writes the file, together with what other runs of this server wrote there meanwhile."""
        if self.path is None or not self._has_changes:
            return
        with self._file_lock():
            self._read()
            nodes = {
                name: [signed_head.to_words() for signed_head in heads]
                for name, heads in self._heads.items()
            }
            strangers = self._strangers()
            write_whole(
                self.path,
                {
                    name: [*nodes.get(name, []), *strangers.get(name, [])]
                    for name in {**strangers, **nodes}
                },
            )
        self._has_changes = False

    def _read(self) -> None:
        for name, heads in self._file().items():
            for words in heads if name in self.keys else ():
                with suppress(ProtocolError):
                    self._add(head_from_words(words))

    def _strangers(self) -> dict[str, list[Any]]:
        """Reads the heads of nodes of other experiments, and of nodes of the same name with another
        key.
        """
        return {
            name: [words for words in heads if self._is_strange(name, words)]
            for name, heads in self._file().items()
        }

    def _is_strange(self, name: str, words: Any) -> bool:
        try:
            head = head_from_words(words).head
        except ProtocolError:
            return False
        return name not in self.keys or (head.node == name and head.public_key != self.keys[name])

    def _file(self) -> dict[str, Any]:
        if self.path is None or not self.path.exists():
            return {}
        try:
            words = json.loads(self.path.read_text())
        except (OSError, ValueError, RecursionError) as error:
            raise DpflError(
                f"{self.path} cannot be read ({error}); restore it from a copy, or remove it."
            ) from error
        if not isinstance(words, dict) or not all(
            isinstance(heads, list) for heads in words.values()
        ):
            raise DpflError(
                f"{self.path} does not contain ledger heads; restore it from a copy, or remove it."
            )
        return words

    @contextmanager
    def _file_lock(self) -> Iterator[None]:
        assert self.path is not None
        try:
            file = self.path.with_name(f"{self.path.name}.lock").open("ab")
        except OSError as error:
            raise DpflError(
                f"{self.path} cannot be written ({error.strerror}); fix its folder."
            ) from error
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
