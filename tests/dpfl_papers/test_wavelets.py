"""The wavelet paper's figures: epsilons as printed, one budget a column, and runs."""

from __future__ import annotations

import pytest

from dpfl.config.experiment import parse
from dpfl_papers import PaperTable, wavelets
from tests.dpfl_papers.conftest import cell_of, run

FEW = ("data.clients=4", "algorithm.tau=1", "budget.rounds=2")


def test_epsilons_are_those_that_the_paper_prints_for_its_data(
    paper_tables: dict[str, PaperTable],
) -> None:
    assert cell_of(paper_tables["wavelet-fig7"], "DP-SGD-WAV", "sigma 3").claimed == 1.64
    assert cell_of(paper_tables["wavelet-fig11"], "DP-FedAvg", "sigma 1,").claimed == 6.38
    assert cell_of(paper_tables["wavelet-3"], "DP-Adam", "sigma 1,", "CIFAR-10").claimed == 24.5
    assert (
        cell_of(paper_tables["wavelet-fig12"], "DP-FedAvg-WAV, published", "sigma 1.5").claimed
        == 7.94
    )


def test_gains_are_said_where_no_accuracy_is_printed(paper_tables: dict[str, PaperTable]) -> None:
    assert "4.9, 7.03, 9.16" in paper_tables["wavelet-fig7"].choices[-1]
    assert "27.3" in paper_tables["wavelet-fig11"].choices[-1]
    assert "DP-AdaGrad 2.31, 3.29, 4.97" in paper_tables["wavelet-3"].choices[-1]
    assert all(cell.printed is None for cell in paper_tables["wavelet-3"].cells)


def test_the_scale_has_the_epsilons_that_the_choices_name() -> None:
    assert [round(wavelets.stated_epsilon(sigma), 2) for sigma in wavelets.SIGMAS] == [
        6.34,
        3.09,
        1.18,
    ]


@pytest.mark.parametrize("name", ["wavelet-fig7", "wavelet-fig10", "wavelet-3"])
def test_private_methods_of_a_column_have_one_budget(
    name: str, paper_tables: dict[str, PaperTable]
) -> None:
    private = [cell for cell in paper_tables[name].cells if cell.claimed is not None]
    for sigma in wavelets.SIGMAS:
        column = [cell for cell in private if cell.column.startswith(f"sigma {sigma:g},")]
        assert {cell.work.content["budget"]["epsilon"] for cell in column} == {
            wavelets.stated_epsilon(sigma)
        }


def test_published_wavelets_claim_what_plain_noise_does_and_prove_far_less(
    paper_tables: dict[str, PaperTable],
) -> None:
    outcome = run(paper_tables["wavelet-fig7"], "DP-SGD-WAV, published", "sigma 1,", *FEW)
    assert isinstance(outcome.claimed, float)
    assert outcome.proven == "unbounded" or float(outcome.proven or 0) > 10 * outcome.claimed


def test_sound_wavelets_at_client_level_run_inside_their_epsilon(
    paper_tables: dict[str, PaperTable],
) -> None:
    outcome = run(
        paper_tables["wavelet-fig10"], "DP-FedAvg-WAV", "sigma 3", *FEW, "data.clients=100"
    )
    assert outcome.unit == "client"
    assert isinstance(outcome.proven, float)
    assert outcome.proven <= wavelets.stated_epsilon(3.0)


@pytest.mark.parametrize("row", ["DP-Adam-WAV", "DP-AdaGrad"])
def test_other_optimisers_run(row: str, paper_tables: dict[str, PaperTable]) -> None:
    outcome = run(paper_tables["wavelet-3"].only(["MNIST"]), row, "sigma 1,", *FEW)
    assert outcome.value is not None
    assert len(outcome.series["accuracy"]) == 2


def test_rows_say_which_clip_and_which_noise_is_published(
    paper_tables: dict[str, PaperTable],
) -> None:
    def options(name: str, row: str) -> dict[str, object]:
        return parse(cell_of(paper_tables[name], row, "sigma 1,").work.content).algorithm.options()

    assert options("wavelet-fig7", "DP-SGD-WAV, published, Lemma 2")["lemma"] is True
    assert options("wavelet-fig7", "DP-SGD-WAV, published, by levels")["clipping"] == "levels"
    assert "clipping" not in options("wavelet-fig10", "DP-FedAvg-WAV, published")
    assert options("wavelet-fig10", "DP-FedAvg-WAV, published, on updates")["clipping"] == "updates"


def test_clips_by_levels_run_and_prove_far_less_than_they_claim(
    paper_tables: dict[str, PaperTable],
) -> None:
    outcome = run(
        paper_tables["wavelet-fig7"], "DP-SGD-WAV, published, by levels", "sigma 1,", *FEW
    )
    assert isinstance(outcome.claimed, float)
    assert float(outcome.proven or 0) > 10 * outcome.claimed
