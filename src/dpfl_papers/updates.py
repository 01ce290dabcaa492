"""The updates of single clients in one round, before they are summed: their norms, and their angles
to the last global update.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from dpfl import algorithms, models
from dpfl.client.task import ClientReply
from dpfl.config.experiment import Experiment, parse
from dpfl.config.settings import with_settings
from dpfl.engines import one_thread
from dpfl.errors import DivergenceError, DpflError
from dpfl.privacy import Budget
from dpfl.run.options import Execution, Privacy
from dpfl.run.prepare import PreparedRun, prepare
from dpfl.run.resolve import RunSpec
from dpfl_papers.cells import Outcome


@dataclass(frozen=True)
class UpdateComparison:
    """The last round of an experiment without noise. Its value is the mean norm of the updates.

    It looks at raw updates, so it has no privacy.

    Attributes:
        content: Sections of the experiment file, without the seed.
    """

    content: Mapping[str, Any]
    tag: ClassVar[str] = "Updates"

    def with_settings(self, settings: Sequence[str]) -> UpdateComparison:
        """Applies settings to the experiment.

        Args:
            settings: Settings of the form `section.key=value`.

        Returns:
            The same comparison with these settings.
        """
        return replace(self, content=with_settings(self.content, settings))

    def run(self, seed: int, data_dir: Path | None, prefixes: Path | None = None) -> Outcome:
        """Runs the rounds and compares the updates of the last one.

        Args:
            seed: Seed of all random draws.
            data_dir: Folder of the data sets; by default `DPFL_DATA`.
            prefixes: Not used.

        Returns:
            The outcome, with norms and angles as series. It has no value if training diverged.
        """
        with tempfile.TemporaryDirectory() as folder:
            job = _prepare(parse({**self.content, "seed": seed}), Path(folder) / "run", data_dir)
            with closing(job.engine):
                try:
                    last, updates = last_round(job)
                except DivergenceError:
                    return Outcome(None, stopped_by="divergence")
        norms = updates.norm(dim=1)
        mean = updates.mean(dim=0, keepdim=True)
        series = {
            "norm": norms.tolist(),
            "angle": angles(updates, last),
            "norm of mean": mean.norm(dim=1).tolist(),
            "angle of mean": angles(mean, last),
        }
        state = job.coordinator.state
        return Outcome(
            float(norms.mean()),
            steps=state.iterations,
            rounds=state.round,
            stopped_by="rounds",
            series=series,
        )


def angles(updates: Tensor, last: Tensor) -> list[float]:
    """Measures angles to a vector.

    Args:
        updates: One update per row.
        last: The vector.

    Returns:
        The angle of each update to the vector, in degrees.
    """
    cosines = torch.nn.functional.cosine_similarity(updates, last.unsqueeze(0), dim=1)
    return [math.degrees(math.acos(max(-1.0, min(1.0, cosine)))) for cosine in cosines.tolist()]


def last_round(job: PreparedRun) -> tuple[Tensor, Tensor]:
    """Runs all rounds of a run without noise.

    Args:
        job: The prepared run.

    Returns:
        The global update of the last round but one, and one row per client with its update in the
        last round.

    Raises:
        DpflError: If the run has noise or fewer than two rounds.
    """
    coordinator, rounds = job.coordinator, job.budget.rounds
    if rounds is None or rounds < 2 or job.algorithm.has_noise:
        raise DpflError(
            "Single updates are looked at without noise, from the second round on: set "
            "budget.rounds to 2 or more."
        )
    last, updates = torch.empty(0), torch.empty(0)
    while (request := coordinator.next_request()) is not None:
        with one_thread():
            replies = job.ask(request)
            if coordinator.state.round == rounds - 1:
                updates = torch.stack(_updates_of(replies))
            else:
                last = -coordinator.state.vector
            coordinator.aggregate(replies)
        if coordinator.state.round < rounds - 1:
            last = last + coordinator.state.vector
        coordinator.close_round(request.steps)
    return last, updates


def _updates_of(replies: Sequence[ClientReply]) -> list[Tensor]:
    return [reply.update for reply in replies if reply.update is not None]


def _prepare(experiment: Experiment, out: Path, data_dir: Path | None) -> PreparedRun:
    spec = RunSpec(
        models.from_name(experiment.model.name, **experiment.model.options()),
        experiment.federation(data_dir),
        algorithms.from_name(experiment.algorithm.name, **experiment.algorithm.options()),
        Budget(**experiment.budget.model_dump()),
        Privacy(noise="plain"),
        execution=Execution(seed=experiment.seed, out=out),
    )
    return prepare(spec)
