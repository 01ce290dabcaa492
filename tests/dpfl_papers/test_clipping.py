"""The clipping paper's tables: closed form, numbers as printed, single updates, and a run."""

from __future__ import annotations

import math

import dp_accounting as dp
import pytest
from dp_accounting.pld import PLDAccountant

from dpfl import models
from dpfl.config.experiment import parse
from dpfl.config.settings import with_settings
from dpfl_papers import PaperTable
from tests.dpfl_papers.conftest import cell_of, run

FEW = (
    "data.clients=20",
    "data.images=50",
    "algorithm.cohort=5",
    "algorithm.tau=2",
    "model.name=mlp",
    "budget.rounds=2",
)


def test_numbers_are_carried_over_as_what_a_drop_leaves(
    paper_tables: dict[str, PaperTable],
) -> None:
    digits, cifar = "MNIST for EMNIST", "CIFAR-10"
    assert cell_of(paper_tables["clipping-2"], "AlexNet, FedAvg", "IID", digits).printed == 98.20
    assert (
        cell_of(paper_tables["clipping-2"], "AlexNet, CE-FedAvg", "non-IID", cifar).printed == 49.84
    )
    assert (
        cell_of(paper_tables["clipping-2"], "ResNet-18, CE-FedAvg", "non-IID", digits).printed
        == 95.33
    )
    assert cell_of(paper_tables["clipping-3"], "ResNet-18", "CE-FedAvg").printed == 95.35
    assert cell_of(paper_tables["clipping-3"], "ResNet-18", "DP-FedAvg").printed == 91.59
    assert cell_of(paper_tables["clipping-3"], "MobileNetV2", "DP-FedAvg").printed == 95.83


def test_numbers_that_the_text_has_lost_are_not_made_up(
    paper_tables: dict[str, PaperTable],
) -> None:
    assert cell_of(paper_tables["clipping-3"], "MLP", "FedAvg").printed == 94.0
    assert cell_of(paper_tables["clipping-3"], "MLP", "CE-FedAvg").printed is None
    assert cell_of(paper_tables["clipping-3"], "MLP", "DP-FedAvg").printed is None
    assert all(
        cell.printed is None
        for name in ("clipping-1", "clipping-4")
        for cell in paper_tables[name].cells
    )


def test_epsilon_is_the_papers_where_there_is_noise(paper_tables: dict[str, PaperTable]) -> None:
    assert cell_of(paper_tables["clipping-3"], "MLP", "DP-FedAvg").claimed == 1.5
    assert cell_of(paper_tables["clipping-3"], "ResNet-18", "DP-FedAvg").claimed == 5.0
    assert cell_of(paper_tables["clipping-3"], "ResNet-18", "CE-FedAvg").claimed is None


def test_clips_measured_on_images_that_clients_hold_are_said_to_be(
    paper_tables: dict[str, PaperTable],
) -> None:
    for name in ("clipping-2", "clipping-3", "clipping-4"):
        assert any(
            "no epsilon here covers the choice of the clip" in choice
            for choice in paper_tables[name].choices
        )
        assert not any("public" in choice for choice in paper_tables[name].choices)


def test_dp_fedavg_runs_inside_its_epsilon(paper_tables: dict[str, PaperTable]) -> None:
    outcome = run(paper_tables["clipping-3"], "MLP", "DP-FedAvg", *FEW)
    assert outcome.unit == "client"
    assert isinstance(outcome.proven, float)
    assert outcome.proven <= 1.5


def test_the_noise_that_the_papers_own_cohort_asks_for_is_as_the_verdict_says(
    paper_tables: dict[str, PaperTable],
) -> None:
    """Table 4, AlexNet: sigma 1.42 on the sum of 80 clipped updates, 32 clips long, by
    dp-accounting itself.
    """
    content = cell_of(paper_tables["clipping-4"], "AlexNet", "DP-FedAvg").work.content
    clients, cohort, rounds = (
        content["data"]["clients"],
        content["algorithm"]["cohort"],
        content["budget"]["rounds"],
    )
    assert (clients, cohort, rounds, content["budget"]["epsilon"], content["budget"]["delta"]) == (
        1920,
        80,
        100,
        1.5,
        1e-5,
    )

    def epsilon(sigma: float) -> float:
        draw = dp.PoissonSampledDpEvent(cohort / clients, dp.GaussianDpEvent(sigma))
        return PLDAccountant().compose(draw, rounds).get_epsilon(1e-5)

    assert epsilon(1.425) < 1.5 < epsilon(1.415)
    size = sum(part.numel() for part in models.alexnet().build((3, 32, 32), 10, 0).parameters())
    assert 1.42 * math.sqrt(size) / cohort == pytest.approx(32, abs=0.5)


def test_skewed_clients_have_the_papers_labels(paper_tables: dict[str, PaperTable]) -> None:
    content = cell_of(
        paper_tables["clipping-2"], "AlexNet, FedAvg", "non-IID", "MNIST for EMNIST"
    ).work.content
    federation = parse(
        with_settings(content, ["data.name=mnist-sample", "data.clients=3"])
    ).federation()
    assert all(sorted(row) == [5] * 8 + [230, 230] for row in federation.label_counts().tolist())


def test_curves_are_of_the_same_runs_as_their_table(paper_tables: dict[str, PaperTable]) -> None:
    for figure, table in (("clipping-fig3", "clipping-3"), ("clipping-fig4", "clipping-4")):
        assert {cell.digest(0) for cell in paper_tables[figure].cells} == {
            cell.digest(0) for cell in paper_tables[table].cells
        }
        assert paper_tables[figure].picture == "curves"
    rows = {cell.row for cell in paper_tables["clipping-fig3"].cells}
    assert rows == {"FedAvg", "CE-FedAvg", "DP-FedAvg", "DP-FedAvg, published"}


def test_the_published_clip_is_found_and_nothing_is_proven(
    paper_tables: dict[str, PaperTable],
) -> None:
    outcome = run(paper_tables["clipping-3"], "MLP, published", "DP-FedAvg", *FEW)
    assert outcome.proven == "unbounded"
    assert isinstance(outcome.claimed, float)
