"""What is kept of a round: evaluation, a row of metrics, a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

from dpfl.accounts import Meter
from dpfl.client.task import Order
from dpfl.coordinator import Coordinator
from dpfl.data import Dataset
from dpfl.models import FlatModel, evaluate
from dpfl.runs import Metrics, Row, RunFolder


class Progress(Protocol):
    """Whoever watches a run."""

    def start(self, job: Any) -> None: ...

    def tell(self, row: Row) -> None: ...

    def stop(self) -> None: ...


class Silent:
    def start(self, job: Any) -> None: ...

    def tell(self, row: Row) -> None: ...

    def stop(self) -> None: ...


@dataclass(frozen=True)
class Recorder:
    folder: RunFolder
    metrics: Metrics
    model: FlatModel
    test: Dataset
    meter: Meter | None
    every: int
    progress: Progress

    def close_round(self, coordinator: Coordinator, order: Order) -> None:
        """The checkpoint comes last: a crash before it makes the round again, with the same noise and no second debit."""
        state = coordinator.state
        accuracy, loss = self.evaluate(coordinator) if state.round % self.every == 0 else (None, None)
        releases = state.iterations if coordinator.algorithm.scale == "step" else state.round
        clip = state.clients.clip.level if coordinator.algorithm.scale == "round" else None
        row = Row(
            round=state.round,
            steps=order.steps,
            iterations=state.iterations,
            clients=coordinator.clients_shown,
            accuracy=accuracy,
            loss=loss,
            epsilon=self.meter.at_most(releases) if self.meter else None,
            clip=clip,
            bytes=state.bytes,
            seconds=state.seconds,
        )
        self.metrics.add(row)
        self.folder.save_checkpoint(state)
        self.progress.tell(row)

    def evaluate(self, coordinator: Coordinator) -> tuple[float, float]:
        self.model.load(coordinator.state.vector)
        return evaluate(self.model, self.test.x, self.test.y)

    def finish(self, accuracy: float, loss: float, epsilon: float | None) -> list[Row]:
        """The last row gets the final figures."""
        rows = self.metrics.rows()
        if rows:
            rows[-1] = replace(rows[-1], accuracy=accuracy, loss=loss, epsilon=epsilon)
            self.metrics.add(rows[-1])
        self.metrics.export(self.folder.file("metrics.parquet"))
        self.metrics.close()
        return rows
