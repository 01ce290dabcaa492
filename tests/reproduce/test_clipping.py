"""The clipping paper's tables: closed form, numbers as printed, single updates, and a run."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import dp_accounting as dp
import pytest
import torch
from dp_accounting.pld import PLDAccountant
from matplotlib.axes import Axes
from torch.nn.utils import parameters_to_vector

from dpfl import models
from dpfl.config.experiment import parse
from dpfl.config.settings import with_settings
from dpfl.errors import DpflError
from dpfl_papers import Outcome, PaperTable
from dpfl_papers.figures import draw
from dpfl_papers.stationary import StationaryPoint
from dpfl_papers.table_report import FinishedCell
from dpfl_papers.updates import angles
from tests.reproduce.conftest import cell_of, run

FEW = (
    "data.clients=20",
    "data.images=50",
    "algorithm.cohort=5",
    "algorithm.tau=2",
    "model.name=mlp",
    "budget.rounds=2",
)


@pytest.mark.parametrize(
    ("steps", "clip", "point"),
    [
        (1, None, 0.0),
        (1, 0.1, 0.0),
        (1, 1.0, 0.0),
        (2, None, 0.0296210251),
        (2, 0.1, 0.1912512716),
        (32, None, 0.6476412537),
        (32, 0.1, 0.5),
        (32, 1.0, 0.6476412537),
        (128, None, 1.1866074498),
        (128, 0.1, 0.5),
        (128, 1.0, 0.6671161424),
    ],
)
def test_fedavg_stops_where_the_closed_form_says(
    steps: int, clip: float | None, point: float
) -> None:
    assert StationaryPoint(steps, clip).run(0, None).value == pytest.approx(point, abs=1e-10)


def test_numbers_are_carried_over_as_what_a_drop_leaves(made: dict[str, PaperTable]) -> None:
    digits, cifar = "MNIST for EMNIST", "CIFAR-10"
    assert cell_of(made["clipping-2"], "AlexNet, FedAvg", "IID", digits).printed == 98.20
    assert cell_of(made["clipping-2"], "AlexNet, CE-FedAvg", "non-IID", cifar).printed == 49.84
    assert cell_of(made["clipping-2"], "ResNet-18, CE-FedAvg", "non-IID", digits).printed == 95.33
    assert cell_of(made["clipping-3"], "ResNet-18", "CE-FedAvg").printed == 95.35
    assert cell_of(made["clipping-3"], "ResNet-18", "DP-FedAvg").printed == 91.59
    assert cell_of(made["clipping-3"], "MobileNetV2", "DP-FedAvg").printed == 95.83


def test_numbers_that_the_text_has_lost_are_not_made_up(made: dict[str, PaperTable]) -> None:
    assert cell_of(made["clipping-3"], "MLP", "FedAvg").printed == 94.0
    assert cell_of(made["clipping-3"], "MLP", "CE-FedAvg").printed is None
    assert cell_of(made["clipping-3"], "MLP", "DP-FedAvg").printed is None
    assert all(
        cell.printed is None for name in ("clipping-1", "clipping-4") for cell in made[name].cells
    )


def test_epsilon_is_the_papers_where_there_is_noise(made: dict[str, PaperTable]) -> None:
    assert cell_of(made["clipping-3"], "MLP", "DP-FedAvg").claimed == 1.5
    assert cell_of(made["clipping-3"], "ResNet-18", "DP-FedAvg").claimed == 5.0
    assert cell_of(made["clipping-3"], "ResNet-18", "CE-FedAvg").claimed is None


def test_clips_measured_on_images_that_clients_hold_are_said_to_be(
    made: dict[str, PaperTable],
) -> None:
    for name in ("clipping-2", "clipping-3", "clipping-4"):
        assert any(
            "no epsilon here covers the choice of the clip" in choice
            for choice in made[name].choices
        )
        assert not any("public" in choice for choice in made[name].choices)


def test_dp_fedavg_runs_inside_its_epsilon(made: dict[str, PaperTable]) -> None:
    outcome = run(made["clipping-3"], "MLP", "DP-FedAvg", *FEW)
    assert outcome.unit == "client"
    assert isinstance(outcome.proven, float)
    assert outcome.proven <= 1.5


def test_the_noise_that_the_papers_own_cohort_asks_for_is_as_the_verdict_says(
    made: dict[str, PaperTable],
) -> None:
    """Table 4, AlexNet: sigma 1.42 on the sum of 80 clipped updates, 32 clips long, by
    dp-accounting itself.
    """
    content = cell_of(made["clipping-4"], "AlexNet", "DP-FedAvg").work.content
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


def test_there_are_as_many_updates_as_clients_in_the_cohort(made: dict[str, PaperTable]) -> None:
    outcome = run(made["clipping-fig1"], "AlexNet", "non-IID", *FEW)
    assert len(outcome.series["norm"]) == len(outcome.series["angle"]) == 5
    assert outcome.value == pytest.approx(math.fsum(outcome.series["norm"]) / 5, rel=1e-6)
    assert outcome.series["norm of mean"][0] < max(outcome.series["norm"])
    assert outcome.rounds == 2


def test_updates_are_those_of_the_round_that_is_asked_for(made: dict[str, PaperTable]) -> None:
    second, third = (
        run(made["clipping-fig1"], "AlexNet", "IID", *FEW, f"budget.rounds={rounds}")
        for rounds in (2, 3)
    )
    assert second.series["norm"] != third.series["norm"]


def test_the_mean_update_and_its_angle_are_those_of_whole_runs(
    made: dict[str, PaperTable], tmp_path: Path
) -> None:
    """The models of runs that end after 0, 1 and 2 rounds differ by the global updates of the first
    round and the second.
    """
    table = made["clipping-fig1"].scaled(["data.name=mnist-sample", *FEW])
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


def test_a_first_round_has_no_update_before_it(made: dict[str, PaperTable]) -> None:
    with pytest.raises(DpflError, match=r"set budget\.rounds to 2"):
        run(made["clipping-fig1"], "AlexNet", "IID", *FEW, "budget.rounds=1")


def test_skewed_clients_have_the_papers_labels(made: dict[str, PaperTable]) -> None:
    content = cell_of(
        made["clipping-2"], "AlexNet, FedAvg", "non-IID", "MNIST for EMNIST"
    ).work.content
    federation = parse(
        with_settings(content, ["data.name=mnist-sample", "data.clients=3"])
    ).federation()
    assert all(sorted(row) == [5] * 8 + [230, 230] for row in federation.label_counts().tolist())


def test_curves_are_of_the_same_runs_as_their_table(made: dict[str, PaperTable]) -> None:
    for figure, table in (("clipping-fig3", "clipping-3"), ("clipping-fig4", "clipping-4")):
        assert {cell.digest(0) for cell in made[figure].cells} == {
            cell.digest(0) for cell in made[table].cells
        }
        assert made[figure].picture == "curves"
    rows = {cell.row for cell in made["clipping-fig3"].cells}
    assert rows == {"FedAvg", "CE-FedAvg", "DP-FedAvg", "DP-FedAvg, published"}


def test_the_published_clip_is_found_and_nothing_is_proven(made: dict[str, PaperTable]) -> None:
    outcome = run(made["clipping-3"], "MLP, published", "DP-FedAvg", *FEW)
    assert outcome.proven == "unbounded"
    assert isinstance(outcome.claimed, float)


def test_the_picture_has_a_black_dot_for_the_mean(
    made: dict[str, PaperTable], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    scatter = Axes.scatter
    monkeypatch.setattr(
        Axes,
        "scatter",
        lambda self, x, y, **how: seen.append((x, y, how)) or scatter(self, x, y, **how),
    )
    cell = cell_of(made["clipping-fig1"], "AlexNet", "IID")
    series = {
        "norm": [1.0, 2.0],
        "angle": [30.0, 60.0],
        "norm of mean": [1.2],
        "angle of mean": [40.0],
    }
    draw(
        made["clipping-fig1"],
        [FinishedCell(cell, (0,), (Outcome(1.5, series=series),))],
        tmp_path / "picture.png",
    )
    assert any(
        how.get("color") == "black" and list(x) == [1.2] and list(y) == [40.0] for x, y, how in seen
    )
