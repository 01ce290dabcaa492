"""ALS-DPFL's tables: numbers as printed, the paper's budgets, and a run."""

from __future__ import annotations

import pytest

from dpfl_papers import PaperTable, ali, als
from tests.dpfl_papers.conftest import cell_of, run

OWN = {"ALS-DPFL", "ALS-DPFL, published"}


def test_numbers_are_carried_over(paper_tables: dict[str, PaperTable]) -> None:
    assert cell_of(paper_tables["als-2"], "ALS-DPFL", "R_s = R_c").printed == 84.19
    assert cell_of(paper_tables["als-2"], "tau = 4", "2 R_s = R_c").printed == 81.12
    assert cell_of(paper_tables["als-2"], "tau = 5", "R_s = 2 R_c").printed == 78.48
    assert cell_of(paper_tables["als-3"], "tau = 1", "2 R_s = R_c").printed == 47.27
    assert cell_of(paper_tables["als-3"], "ALS-DPFL", "R_s = 2 R_c").printed == 50.01
    assert cell_of(paper_tables["als-3"], "ALS-DPFL, published", "R_s = R_c").printed is None


@pytest.mark.parametrize(("name", "place"), [("als-2", 1), ("als-3", 2)])
def test_numbers_are_those_of_the_other_paper_as_the_choices_say(
    name: str, place: int, paper_tables: dict[str, PaperTable]
) -> None:
    lines = [line.split() for line in ali.PRINTED_ROWS["ali-4"][2].split("\n") if line.strip()]
    theirs = {
        row: [float(word) for word in line[place::3]]
        for row, line in zip(ali.METHODS, lines, strict=True)
    }
    renamed = {"ALS-DPFL": "ALI-DPFL", "tau = 4": "tau = 5", "tau = 5": "tau = 10"}
    for row in als.METHODS:
        assert (
            cell_of(paper_tables[name], row, "R_s = R_c").printed
            == theirs[renamed.get(row, row)][1]
        )
    for row in ("tau = 1", "tau = 2", "tau = 3", "tau = 5"):
        assert cell_of(paper_tables[name], row, "R_s = 2 R_c").printed == theirs[row][0]


def test_rounds_and_epsilon_are_those_of_the_text(paper_tables: dict[str, PaperTable]) -> None:
    sound = cell_of(paper_tables["als-2"], "ALS-DPFL", "2 R_s = R_c")
    assert sound.work.content["budget"]["rounds"] == 158
    assert sound.claimed == 2.0
    assert sound.work.content["budget"]["epsilon"] == ali.proven(317) < 2.0
    assert (
        cell_of(paper_tables["als-2"], "ALS-DPFL, published", "2 R_s = R_c").work.content["budget"][
            "epsilon"
        ]
        == 2.0
    )
    assert (
        cell_of(paper_tables["als-2"], "tau = 5", "R_s = 2 R_c").work.content["budget"]["rounds"]
        == 36
    )  # 177 steps


def test_als_dpfl_runs(paper_tables: dict[str, PaperTable]) -> None:
    outcome = run(
        paper_tables["als-2"],
        "ALS-DPFL",
        "2 R_s",
        "data.shards=40",
        "data.per_client=4",
        "budget.rounds=2",
    )
    assert outcome.value is not None
    assert outcome.rounds == 2
    assert outcome.unit == "sample"
    assert isinstance(outcome.proven, float)


def test_figures_are_made_of_the_cells_of_the_tables(paper_tables: dict[str, PaperTable]) -> None:
    of_tables = {cell.digest(0) for name in ("als-2", "als-3") for cell in paper_tables[name].cells}
    for number, rows in (
        (2, {f"tau = {tau}" for tau in range(1, 6)}),
        (4, OWN),
        (5, OWN),
        (6, OWN),
    ):
        figure = paper_tables[f"als-fig{number}"]
        assert {cell.digest(0) for cell in figure.cells} <= of_tables
        assert {cell.row for cell in figure.cells} == rows
    assert [
        {cell.group for cell in paper_tables[f"als-fig{number}"].cells} for number in (4, 5)
    ] == [
        {"Fashion-MNIST"},
        {"CIFAR-10"},
    ]
    assert len(paper_tables["als-fig6"].cells) == 4


def test_the_paper_s_bound_is_undefined_for_its_own_network_as_the_choices_say() -> None:
    assert round(1.1**2 * 26_010) == 31_472
