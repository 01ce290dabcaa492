"""MLflow reads what its logger wrote."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dpfl.data import Federation
from dpfl.loggers import MLflow
from tests.conftest import StopsAfter
from tests.run.small_runs import Train
from tests.run.test_callbacks import SEED, SYSTEM


def test_mlflow_reads_what_was_written_and_a_resumed_run_goes_on(
    train: Train, federation: Federation, tmp_path: Path
) -> None:
    file = tmp_path / "mlflow.db"
    shared = {"rounds": 2, "evaluate_every": 1, "seed": SEED, "accountant": "rdp"}
    with pytest.raises(KeyboardInterrupt):
        train(federation, SYSTEM, callbacks=[MLflow(file)], progress=StopsAfter(1), **shared)
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{file}")
    place = client.get_experiment_by_name("dpfl").experiment_id
    assert [run.info.status for run in client.search_runs([place])] == ["KILLED"]
    result = train(federation, SYSTEM, callbacks=[MLflow(file)], resume=True, **shared)
    (run,) = client.search_runs([place])
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "run"
    assert run.data.params["algorithm.name"] == "fedavg-dp"
    assert run.data.metrics["test/accuracy"] == pytest.approx(result.history[-1].accuracy)
    assert [point.step for point in client.get_metric_history(run.info.run_id, "round/steps")] == [
        1,
        2,
    ]
    assert "privacy statement" in run.data.tags["mlflow.note.content"]
    assert run.data.tags["privacy_unit"] == "sample"
    assert str(SEED).encode() not in file.read_bytes()
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
