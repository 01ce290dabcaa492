"""How long a table will take, from what its cells are made of."""

from __future__ import annotations

import pytest

from dpfl_papers import PaperTable
from dpfl_papers.cost import SMALLEST_BATCH, duration_text, samples_of, seconds_of, speed_meter
from tests.dpfl_papers.conftest import cell_of


def test_gradients_are_rounds_times_clients_times_steps_times_batch(
    paper_tables: dict[str, PaperTable],
) -> None:
    hellinger = cell_of(paper_tables["hw-1"], "HW-DPFL, published", "IID").work.content
    assert (
        samples_of(hellinger) == 100 * 100 * 10 * SMALLEST_BATCH
    )  # batches of 10 take as long as 32
    digits = cell_of(paper_tables["clipping-3"], "MLP", "FedAvg").work.content
    assert samples_of(digits) == 100 * 80 * 32 * 64
    wavelets = cell_of(paper_tables["wavelet-fig7"], "DP-SGD", "sigma 1,").work.content
    assert samples_of(wavelets) == 20 * 100 * 3 * 0.1 * 600


def test_what_is_done_or_the_same_work_takes_no_time(paper_tables: dict[str, PaperTable]) -> None:
    cells = paper_tables["clipping-3"].only(["MLP"]).cells
    each = [samples_of(cell.work.content) / 2.0 for cell in cells]
    assert seconds_of(cells, 1, lambda cell, seed: True, lambda content: 2.0) == sum(each)
    assert (
        seconds_of((*cells, *cells), 2, lambda cell, seed: cell is cells[0], lambda content: 2.0)
        == 2 * each[0]
    )
    assert (
        seconds_of(
            paper_tables["clipping-1"].cells, 1, lambda cell, seed: True, lambda content: 2.0
        )
        == 0
    )


def test_a_model_is_measured_once_on_random_numbers(paper_tables: dict[str, PaperTable]) -> None:
    speed, content = (
        speed_meter(),
        cell_of(paper_tables["clipping-3"], "MLP", "FedAvg").work.content,
    )
    assert speed(content) > 1
    assert speed(content) == speed(content)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(30, "some 15 seconds"), (600, "some 5 minutes"), (36000, "some 5 hours")],
)
def test_time_is_told_in_words(seconds: float, words: str) -> None:
    assert duration_text(seconds, 2) == words


def test_of_runs_that_begin_alike_the_longest_counts(paper_tables: dict[str, PaperTable]) -> None:
    short = paper_tables["ali-2"].only(["MNIST", "tau = 3"]).cells
    long = paper_tables["ali-3"].only(["MNIST", "tau = 3"]).cells
    assert max(cell.work.content["budget"]["rounds"] for cell in long) == 317
    each = 317 * 10 * 3 * 0.015 * 6000
    for cells in (long, (*short, *long)):
        assert seconds_of(cells, 2, lambda cell, seed: True, lambda content: 1.0) == pytest.approx(
            2 * each
        )
