"""TensorBoard reads what its logger wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfl.data import Federation
from dpfl.loggers import TensorBoard
from tests.run.small_runs import Train
from tests.run.test_callbacks import SEED, SYSTEM


def test_tensorboard_reads_what_was_written(
    train: Train, federation: Federation, tmp_path: Path
) -> None:
    result = train(
        federation,
        SYSTEM,
        rounds=2,
        callbacks=[TensorBoard(tmp_path / "boards")],
        evaluate_every=1,
        seed=SEED,
        accountant="rdp",
    )
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "boards" / "run"))
    events.Reload()
    used = events.Scalars("privacy/epsilon_used_upper_bound")
    assert [point.step for point in used] == [1, 2]
    assert used[0].value == pytest.approx(result.history[0].epsilon, rel=1e-6)
    assert events.Scalars("test/accuracy")[-1].value == pytest.approx(result.accuracy, rel=1e-6)
    (file,) = (tmp_path / "boards" / "run").iterdir()
    assert b"privacy statement" in file.read_bytes()
    assert str(SEED).encode() not in file.read_bytes()
