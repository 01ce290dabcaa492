"""Writes a run for MLflow, into an SQLite file."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfl.errors import DpflError
from dpfl.loggers.scalars import check_writable, flat, scalars, statement_text
from dpfl.run.callbacks import Callback, RunStart
from dpfl.run.metrics import RoundRow

if TYPE_CHECKING:
    from dpfl.run.result import Result

MOST_WORD = 500
"""The most characters of a parameter, since MLflow limits them."""


class MLflow(Callback):
    """Writes settings, scalars of every round, and the privacy statement.

    `mlflow ui --backend-store-uri sqlite:///FILE` shows them. A resumed run continues under its
    name. MLflow's own telemetry is switched off. Unlike MLflow's fluent functions, this logger
    records nothing about the user, the machine or the repository.
    """

    def __init__(self, file: Path | str = "mlflow.db", experiment: str = "dpfl") -> None:
        if "://" in str(file):
            raise DpflError(
                f"The MLflow logger writes to a local file, not to {str(file)[:80]!r}; give a path."
            )
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        try:
            import sqlalchemy  # noqa: F401
            from mlflow.tracking import MlflowClient
        except ImportError:
            raise DpflError(
                "MLflow is not installed: pip install 'dpfl[mlflow]', or remove the logger."
            ) from None
        self._file, self._name, self._client = Path(file).absolute(), experiment, MlflowClient
        check_writable(self._file.parent)
        self._run = ""

    def on_start(self, run: RunStart) -> None:
        self._store = self._client(tracking_uri=f"sqlite:///{self._file}")
        self._run = self._resume(run.run) or self._new(run)

    def _experiment(self) -> str:
        experiment = self._store.get_experiment_by_name(self._name)
        if experiment is not None:
            return str(experiment.experiment_id)
        return str(
            self._store.create_experiment(
                self._name, artifact_location=(self._file.parent / "mlflow-files").as_uri()
            )
        )

    def _resume(self, run: str) -> str:
        """Returns MLflow's id of a run that was begun before, or ""."""
        runs: list[Any] = self._store.search_runs([self._experiment()], f"tags.dpfl_run = '{run}'")
        if runs:
            self._store.update_run(runs[0].info.run_id, status="RUNNING")
        return str(runs[0].info.run_id) if runs else ""

    def _new(self, run: RunStart) -> str:
        run_id = str(
            self._store.create_run(
                self._experiment(), tags={"dpfl_run": run.run}, run_name=run.folder.name
            ).info.run_id
        )
        for name, value in flat(run.settings).items():
            self._store.log_param(run_id, name, value[:MOST_WORD])
        return run_id

    def on_round(self, row: RoundRow) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self._store.log_batch(
            self._run, [Metric(name, value, now, row.round) for name, value in scalars(row).items()]
        )

    def on_end(self, result: Result) -> None:
        self._store.set_tag(self._run, "mlflow.note.content", statement_text(result))
        self._store.set_tag(self._run, "privacy_proven", result.privacy.lines()[0][1])
        self._store.set_tag(self._run, "privacy_unit", result.privacy.unit)
        self._store.set_terminated(self._run, "FINISHED")

    def on_interruption(self) -> None:
        if self._run:
            self._store.set_terminated(self._run, "KILLED")
