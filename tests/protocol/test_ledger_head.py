"""Which heads of a node are remembered."""

from __future__ import annotations

from dpfl.privacy.ledger.starts import NodeStart
from dpfl.protocol.ledger_head import (
    HEADS_TO_KEEP,
    HeadSet,
    LedgerHead,
    SignedHead,
)
from tests.protocol.test_head_words import HEAD


def test_of_each_start_the_furthest_head_is_remembered_and_of_starts_the_latest() -> None:
    def head(boot: int, rows: int) -> SignedHead:
        return SignedHead(
            LedgerHead(
                **{**vars(HEAD), "rows": rows, "starts": (NodeStart(boot, f"{boot:016x}", rows),)}
            ),
            "",
        )

    known = HeadSet()
    assert known.add(head(1, 5))
    assert not known.add(head(1, 5))
    assert not known.add(head(1, 4))
    assert known.add(head(1, 6))
    for boot in range(2, HEADS_TO_KEEP + 1):
        assert known.add(head(boot, 10 * boot))
    assert len(known) == HEADS_TO_KEEP
    assert known.add(head(HEADS_TO_KEEP + 1, 3)), "a later start with fewer rows is of a copy"
    assert [one.head.boot for one in known] == [*range(HEADS_TO_KEEP + 1, 1, -1)]
    assert not known.add(head(1, 99)), "the earliest goes first"
