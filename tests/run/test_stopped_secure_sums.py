"""A run with secure sums that is resumed never sends the same numbers twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.run.records.folder import RunFolder
from dpfl.server.aggregation.round_sum import RoundSum
from tests.conftest import StopsAfter
from tests.run.secure_runs import ONE_STEP, Train, events, losing


def test_a_resumed_run_is_the_run_that_was_never_stopped(train: Train, ten: Federation):
    options = {"rounds": 4, "aggregation": "secure", "survivors": 8, "colluders": 1}
    whole = train(ten, ONE_STEP, out="whole", **options)
    with pytest.raises(KeyboardInterrupt):
        train(ten, ONE_STEP, progress=StopsAfter(2), **options)
    resumed = train(ten, ONE_STEP, resume=True, **options)
    assert resumed.model_sha256 == whole.model_sha256
    assert events(resumed.folder) == events(whole.folder)
    with pytest.raises(DpflError, match="The experiment differs"):
        train(ten, ONE_STEP, resume=True, **{**options, "colluders": 0})


def test_numbers_that_may_have_been_opened_are_never_sent_again(
    train: Train, ten: Federation, monkeypatch
):
    """Fault: a round made again after a crash, with one client less, had the same shares; the two
    sums differ by that client's numbers alone, whose noise is a share. Made again, numbers have new
    noise and are paid for again."""
    options, sums = {"rounds": 3, "aggregation": "secure", "survivors": 8}, []
    update, kept = RoundSum.update, RunFolder.save_checkpoint

    def seen(self: RoundSum, sent: dict[int, np.ndarray], *more: Any) -> Any:
        sums.append(sent)
        return update(self, sent, *more)

    def crash(self: RunFolder, state: Any) -> None:
        if state.round == 2:
            raise KeyboardInterrupt
        kept(self, state)

    monkeypatch.setattr(RoundSum, "update", seen)
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "save_checkpoint", crash)
        with pytest.raises(KeyboardInterrupt):
            train(ten, ONE_STEP, **options)
    losing(monkeypatch, 9)
    resumed = train(ten, ONE_STEP, resume=True, **options)
    assert [len(sent) for sent in sums] == [10, 10, 9, 9]
    assert all((sums[1][client] != sums[2][client]).mean() > 0.9 for client in sums[2])
    assert [sum(spent.values()) for spent in events(resumed.folder)] == [4] * 9 + [2]
