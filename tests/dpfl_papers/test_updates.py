"""The updates of single clients, their norms and angles."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch.nn.utils import parameters_to_vector

from dpfl import models
from dpfl.config.experiment import parse
from dpfl.config.settings import with_settings
from dpfl.errors import DpflError
from dpfl_papers import PaperTable
from dpfl_papers.updates import angles
from tests.dpfl_papers.conftest import cell_of, run
from tests.dpfl_papers.test_clipping import FEW


def test_there_are_as_many_updates_as_clients_in_the_cohort(
    paper_tables: dict[str, PaperTable],
) -> None:
    outcome = run(paper_tables["clipping-fig1"], "AlexNet", "non-IID", *FEW)
    assert len(outcome.series["norm"]) == len(outcome.series["angle"]) == 5
    assert outcome.value == pytest.approx(math.fsum(outcome.series["norm"]) / 5, rel=1e-6)
    assert outcome.series["norm of mean"][0] < max(outcome.series["norm"])
    assert outcome.rounds == 2


def test_updates_are_those_of_the_round_that_is_asked_for(
    paper_tables: dict[str, PaperTable],
) -> None:
    second, third = (
        run(paper_tables["clipping-fig1"], "AlexNet", "IID", *FEW, f"budget.rounds={rounds}")
        for rounds in (2, 3)
    )
    assert second.series["norm"] != third.series["norm"]


def test_the_mean_update_and_its_angle_are_those_of_whole_runs(
    paper_tables: dict[str, PaperTable], tmp_path: Path
) -> None:
    """The models of runs that end after 0, 1 and 2 rounds differ by the global updates of the first
    round and the second.
    """
    table = paper_tables["clipping-fig1"].with_settings(["data.name=mnist-sample", *FEW])
    content = cell_of(table, "AlexNet", "non-IID").work.content
    vectors = [parameters_to_vector(models.mlp().build((1, 28, 28), 10, 0).parameters())]
    for rounds in (1, 2):
        experiment = parse(with_settings(content, [f"budget.rounds={rounds}"]))
        vectors.append(
            parameters_to_vector(
                experiment.run(tmp_path / str(rounds), workers=1).module.parameters()
            )
        )
    first, second = ((after - before).detach() for before, after in pairwise(vectors))
    outcome = cell_of(table, "AlexNet", "non-IID").work.run(0, None)
    assert outcome.series["norm of mean"] == pytest.approx([float(second.norm())], rel=1e-4)
    assert outcome.series["angle of mean"] == pytest.approx(angles(second[None], first), abs=0.1)


def test_angles_are_in_degrees() -> None:
    updates = torch.tensor([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]])
    assert angles(updates, torch.tensor([5.0, 0.0])) == pytest.approx([0.0, 90.0, 180.0])


def test_a_first_round_has_no_update_before_it(paper_tables: dict[str, PaperTable]) -> None:
    with pytest.raises(DpflError, match=r"set budget\.rounds to 2"):
        run(paper_tables["clipping-fig1"], "AlexNet", "IID", *FEW, "budget.rounds=1")
