"""What holds for every table: names, places, and experiments that can be built."""

from __future__ import annotations

import pytest

from dpfl import algorithms, models
from dpfl.config.experiment import parse
from dpfl.data import partition
from dpfl.privacy import Budget
from dpfl_papers import PaperTable, tables

NAMES = (
    *("als-2", "als-3", "hw-1", "hw-noise", "hw-fig4", "hw-fig5", "hw-fig6"),
    *("clipping-1", "clipping-2", "clipping-3", "clipping-4"),
    *(f"clipping-fig{number}" for number in range(1, 12)),
    *(f"wavelet-fig{number}" for number in (4, *range(7, 13))),
    "wavelet-3",
)


def test_the_papers_tables_are_there_under_their_names(paper_tables: dict[str, PaperTable]) -> None:
    assert set(NAMES) <= set(paper_tables)
    assert all(name == table.name for name, table in paper_tables.items())


@pytest.mark.parametrize("name", NAMES)
def test_every_cell_has_a_place_of_its_own_and_every_choice_is_said(
    name: str, paper_tables: dict[str, PaperTable]
) -> None:
    places = [cell.place for cell in paper_tables[name].cells]
    assert len(set(places)) == len(places)
    assert paper_tables[name].choices


@pytest.mark.parametrize(
    "name", [name for name in NAMES if name not in ("clipping-1", "wavelet-fig4")]
)
def test_every_experiment_can_be_built(name: str, paper_tables: dict[str, PaperTable]) -> None:
    for cell in paper_tables[name].cells:
        experiment = parse(cell.work.content)
        algorithm = algorithms.from_name(
            experiment.algorithm.name, **experiment.algorithm.options()
        )
        models.from_name(experiment.model.name, **experiment.model.options())
        partition.parse(experiment.data.partition, **experiment.data.options())
        budget = Budget(**experiment.budget.model_dump())
        assert (cell.claimed is None) == (algorithm.unit == "none")
        assert budget.rounds
        assert algorithm.variant == ("published" if "published" in cell.row else "sound")


@pytest.mark.parametrize("name", NAMES)
def test_digests_are_equal_for_equal_work_alone(
    name: str, paper_tables: dict[str, PaperTable]
) -> None:
    cells = paper_tables[name].cells
    works = {repr((type(cell.work).__name__, cell.work.content)) for cell in cells}
    assert len({cell.digest(0) for cell in cells}) == len(works)
    assert cells[0].digest(0) != cells[0].digest(1)


def test_digests_do_not_change_from_one_making_to_the_next(
    paper_tables: dict[str, PaperTable],
) -> None:
    again = tables()
    assert all(
        [cell.digest(0) for cell in paper_tables[name].cells]
        == [cell.digest(0) for cell in again[name].cells]
        for name in NAMES
    )
