"""A run as MLflow keeps it, in an SQLite file."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfl.errors import DpflError
from dpfl.loggers.scalars import flat, scalars, told, writable
from dpfl.run.callbacks import Callback, RunStart
from dpfl.run.metrics import RoundRow

if TYPE_CHECKING:
    from dpfl.run.result import Result

MOST_WORD = 500
"""Characters of a parameter, which MLflow has a limit on."""


class MLflow(Callback):
    """Settings, scalars of every round and the statement; `mlflow ui --backend-store-uri
    sqlite:///FILE` shows them.

    A run that is resumed goes on under its name. MLflow's own telemetry is switched off, and
    nothing of the user, the machine or the repository is recorded, as MLflow's fluent functions
    would.
    """

    def __init__(self, file: Path | str = "mlflow.db", experiment: str = "dpfl") -> None:
        if "://" in str(file):
            raise DpflError(
                f"The MLflow logger writes a file of this machine, not {str(file)[:80]!r}: name a "
                "path."
            )
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        try:
            import sqlalchemy  # noqa: F401
            from mlflow.tracking import MlflowClient
        except ImportError:
            raise DpflError(
                "MLflow is not installed: pip install 'dpfl[mlflow]', or leave the logger out."
            ) from None
        self._file, self._name, self._client = Path(file).absolute(), experiment, MlflowClient
        writable(self._file.parent)
        self._run = ""

    def started(self, run: RunStart) -> None:
        self._held = self._client(tracking_uri=f"sqlite:///{self._file}")
        self._run = self._known(run.run) or self._new(run)

    def _experiment(self) -> str:
        known = self._held.get_experiment_by_name(self._name)
        if known is not None:
            return str(known.experiment_id)
        return str(
            self._held.create_experiment(
                self._name, artifact_location=(self._file.parent / "mlflow-files").as_uri()
            )
        )

    def _known(self, run: str) -> str:
        found: list[Any] = self._held.search_runs([self._experiment()], f"tags.dpfl_run = '{run}'")
        if found:
            self._held.update_run(found[0].info.run_id, status="RUNNING")
        return str(found[0].info.run_id) if found else ""

    def _new(self, run: RunStart) -> str:
        made = str(
            self._held.create_run(
                self._experiment(), tags={"dpfl_run": run.run}, run_name=run.folder.name
            ).info.run_id
        )
        for name, value in flat(run.settings).items():
            self._held.log_param(made, name, value[:MOST_WORD])
        return made

    def round(self, row: RoundRow) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self._held.log_batch(
            self._run, [Metric(name, value, now, row.round) for name, value in scalars(row).items()]
        )

    def ended(self, result: Result) -> None:
        self._held.set_tag(self._run, "mlflow.note.content", told(result))
        self._held.set_tag(self._run, "privacy_proven", result.privacy.lines()[0][1])
        self._held.set_tag(self._run, "privacy_unit", result.privacy.unit)
        self._held.set_terminated(self._run, "FINISHED")

    def broken_off(self) -> None:
        if self._run:
            self._held.set_terminated(self._run, "KILLED")
