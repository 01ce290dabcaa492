"""The table that changes one ingredient of `auto` at a time."""

from __future__ import annotations

import pytest

from dpfl import algorithms, models
from dpfl.config.experiment import parse
from dpfl_papers.ablation import CHANGES, LIMITS
from tests.dpfl_papers.conftest import TABLES

CELLS = TABLES["auto"].cells


def test_every_change_is_made_on_both_data_sets_within_both_limits() -> None:
    rows = {*CHANGES, "no features (cnn)", "fedavg-dp, cnn"}
    assert {cell.row for cell in CELLS} == rows
    assert len({cell.place for cell in CELLS}) == len(CELLS) == 2 * len(LIMITS) * len(rows)


@pytest.mark.parametrize("row", CHANGES)
def test_a_row_differs_from_auto_by_its_change_alone(row: str) -> None:
    cells = [cell for cell in CELLS if cell.row == row]
    plain = [cell for cell in CELLS if cell.row == "auto"]
    for cell, auto in zip(cells, plain, strict=True):
        algorithm = auto.work.content["algorithm"] | CHANGES[row]
        assert cell.work.content == {**auto.work.content, "algorithm": algorithm}


def test_every_experiment_can_be_built() -> None:
    for cell in CELLS:
        experiment = parse(cell.work.content)
        assert algorithms.from_name(experiment.algorithm.name, **experiment.algorithm.options())
        assert models.from_name(experiment.model.name, **experiment.model.options())
