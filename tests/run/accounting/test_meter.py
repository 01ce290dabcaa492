"""Epsilon of a run under way is an upper bound."""

from pathlib import Path

import pytest

from dpfl.data import Federation
from dpfl.privacy import Ledger, Limit, accountant
from dpfl.privacy.accounting.events import ADD_REMOVE
from tests.run.small_runs import (
    EVENT,
    SOUND,
    Train,
)


def test_the_epsilon_that_is_shown_is_never_below_that_of_any_client(
    train: Train, federation: Federation, tmp_path: Path
) -> None:
    """Client 1 has spent more than the others; client 2 has the least left, having spent
    nothing.
    """
    earlier = Ledger.open(
        tmp_path / "ledgers" / "client-00001.sqlite", "client-00001", "sample", ADD_REMOVE
    )
    earlier.debit("earlier", "release", EVENT, 500)
    earlier.close()
    for name in ("client-00000", "client-00003"):
        Ledger.open(tmp_path / "ledgers" / f"{name}.sqlite", name, "sample", ADD_REMOVE).close()
    own = accountant("rdp").epsilon({EVENT: 9}, 1e-5) * (1 + 1e-9)
    Ledger.open(
        tmp_path / "ledgers" / "client-00002.sqlite",
        "client-00002",
        "sample",
        ADD_REMOVE,
        Limit(own, 1e-5, "rdp"),
    ).close()
    result = train(federation, SOUND, rounds=3, ledger=tmp_path / "ledgers", accountant="rdp")
    truth = [
        accountant("rdp").epsilon({EVENT: 500 + row.iterations}, 1e-5) for row in result.history
    ]
    assert result.privacy.proven == pytest.approx(truth[-1])
    assert all(
        row.epsilon >= least - 1e-9 for row, least in zip(result.history, truth, strict=True)
    )
