"""Makes a run over nodes observable: one JSON object per line in `server.log`, and `/metrics`.

Neither contains anything that is derived from data.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dpfl.node.storage.journal import Journal
from dpfl.run.metrics import RoundRow
from dpfl.run.recorder import Progress
from dpfl.transports.flower.watch import MetricSample, alone

LOG = "server.log"
LOST_HELP = "Replies that were refused, lost or dropped."


class FederationProgress:
    """Writes the log and keeps the latest figures, and passes every event on to `inner`."""

    def __init__(self, inner: Progress, folder: Path) -> None:
        self._inner, self._folder = inner, folder
        self._journal: Journal | None = None
        self._job: Any = None
        self._row: RoundRow | None = None
        self._lost_count = 0

    def start(self, job: Any) -> None:
        """Opens the log and writes that the run has begun.

        Args:
            job: The prepared run.
        """
        self._job, self._journal = job, Journal(self._folder / LOG)
        self._lost_count = len(job.coordinator.lost_replies)
        self._journal.write(
            "started", run=job.run, system=job.algorithm.name, round=job.coordinator.state.round
        )
        self._inner.start(job)

    def tell(self, row: RoundRow) -> None:
        """Writes a finished round, and the replies that were lost since the last one.

        Args:
            row: The round.
        """
        self._row = row
        replies = self._job.coordinator.lost_replies
        assert self._journal is not None
        for reply in replies[self._lost_count :]:
            self._journal.write("lost", reply=reply)
        self._lost_count = len(replies)
        self._journal.write(
            "round",
            round=row.round,
            epsilon=row.epsilon,
            delta=self._job.budget.delta,
            steps=row.steps,
            clients=row.clients,
            bytes=row.bytes,
            seconds=round(row.seconds, 3),
        )
        self._inner.tell(row)

    def stop(self) -> None:
        """Writes why the run ended, and closes the log."""
        if self._journal:
            self._journal.write("ended", by=self._job.coordinator.stopped_by)
            self._journal.close()
        self._inner.stop()

    def figures(self) -> list[MetricSample]:
        """Returns the figures of the latest round.

        Returns:
            What `/metrics` shows to Prometheus.
        """
        row = self._row
        if row is None or self._job is None:
            return [alone("dpfl_rounds_total", "counter", "Finished rounds.", 0)]
        guarantee = f'delta="{self._job.budget.delta:g}",unit="{self._job.algorithm.unit}"'
        samples = [
            alone("dpfl_rounds_total", "counter", "Finished rounds.", row.round),
            alone("dpfl_replies_lost_total", "counter", LOST_HELP, self._lost_count),
            alone("dpfl_bytes_total", "counter", "Bytes of models and updates.", row.bytes),
            alone("dpfl_seconds_total", "counter", "Seconds that the run has taken.", row.seconds),
            alone("dpfl_clients", "gauge", "Nodes in the last round.", row.clients),
        ]
        if row.epsilon is not None:
            bound = "Upper bound on the epsilon that the server has requested."
            epsilon = {guarantee: row.epsilon}
            samples.append(MetricSample("dpfl_epsilon_ordered", "gauge", bound, epsilon))
        return samples
