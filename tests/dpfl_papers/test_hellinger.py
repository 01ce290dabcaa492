"""HW-DPFL's table and figures: numbers as printed, epsilons by the paper's theorem, and runs."""

from __future__ import annotations

import pytest

from dpfl import algorithms
from dpfl.config.experiment import parse
from dpfl_papers import PaperTable, hellinger
from tests.dpfl_papers.conftest import cell_of, run

FEW = ("data.clients=10", "budget.rounds=2")


def test_numbers_are_carried_over(paper_tables: dict[str, PaperTable]) -> None:
    assert cell_of(paper_tables["hw-1"], "HW-DPFL", "IID").printed == 96.67
    assert cell_of(paper_tables["hw-1"], "HW-DPFL", "non-IID").printed == 95.21
    assert cell_of(paper_tables["hw-1"], "DP-FedAvg", "non-IID").printed == 90.03
    assert cell_of(paper_tables["hw-1"], "DP-FL", "IID").printed == 94.20
    assert cell_of(paper_tables["hw-1"], "HW-DPFL, published", "IID").printed is None


def test_the_stated_epsilon_is_theorem_2_and_the_same_for_every_method(
    paper_tables: dict[str, PaperTable],
) -> None:
    # 1 a round, gamma = 1/6: sqrt(100 ln(1e5) / (2 ln(1.25e5 / 6)))
    assert hellinger.stated_epsilon(100) == pytest.approx(7.6088, abs=1e-3)
    budgets = {
        cell.work.content["budget"]["epsilon"]
        for cell in paper_tables["hw-1"].cells
        if "sigma" not in cell.row
    }
    assert budgets == {hellinger.stated_epsilon(100)}


@pytest.mark.parametrize("sigma", hellinger.SIGMAS)
def test_figure_6_has_the_same_noise_published_and_sound(
    sigma: float, paper_tables: dict[str, PaperTable]
) -> None:
    for row in (f"sigma = {sigma:g}", f"sigma = {sigma:g}, published"):
        section = parse(cell_of(paper_tables["hw-fig6"], row, "IID").work.content).algorithm
        uploads = algorithms.from_name(section.name, **section.options()).updates
        assert uploads is not None
        assert uploads.stddev() == pytest.approx(sigma)


def test_published_claims_a_number_and_proves_nothing(paper_tables: dict[str, PaperTable]) -> None:
    outcome = run(paper_tables["hw-1"], "HW-DPFL, published", "non-IID", *FEW)
    assert isinstance(outcome.claimed, float)
    assert outcome.proven == "unbounded"


def test_sound_stays_inside_the_stated_epsilon_and_draws_a_curve_of_losses(
    paper_tables: dict[str, PaperTable],
) -> None:
    outcome = run(paper_tables["hw-fig4"], "b = 10", "non-IID", *FEW)
    assert isinstance(outcome.proven, float)
    assert outcome.proven <= hellinger.stated_epsilon(hellinger.CURVE_ROUNDS)
    losses = outcome.series["training loss"]
    assert outcome.value == losses[-1]
    assert len(losses) == 2
    assert losses != outcome.series["loss"]


@pytest.mark.parametrize("sigma", [*hellinger.SIGMAS, *hellinger.NEEDED_SIGMAS])
def test_a_row_with_a_sigma_adds_that_deviation(
    sigma: float, paper_tables: dict[str, PaperTable]
) -> None:
    name, row = (
        ("hw-1", "HW-DPFL, published") if sigma in hellinger.SIGMAS else ("hw-noise", "published")
    )
    for cell in paper_tables[name].cells:
        if cell.row == f"{row}, sigma = {sigma:g}":
            section = parse(cell.work.content).algorithm
            uploads = (
                algorithms.from_name(section.name, **section.options()).for_client_size(600).updates
            )
            assert uploads.stddev() == pytest.approx(sigma)
