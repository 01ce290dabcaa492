"""HW-DPFL's table and figures: numbers as printed, epsilons by the paper's theorem, and runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import dpfl
from dpfl import algorithms
from dpfl.config.experiment import parse
from dpfl_papers import PaperTable, hellinger
from tests.reproduce.conftest import cell_of, run

FEW = ("data.clients=10", "budget.rounds=2")


def test_numbers_are_carried_over(made: dict[str, PaperTable]) -> None:
    assert cell_of(made["hw-1"], "HW-DPFL", "IID").printed == 96.67
    assert cell_of(made["hw-1"], "HW-DPFL", "non-IID").printed == 95.21
    assert cell_of(made["hw-1"], "DP-FedAvg", "non-IID").printed == 90.03
    assert cell_of(made["hw-1"], "DP-FL", "IID").printed == 94.20
    assert cell_of(made["hw-1"], "HW-DPFL, published", "IID").printed is None


def test_the_stated_epsilon_is_theorem_2_and_the_same_for_every_method(
    made: dict[str, PaperTable],
) -> None:
    # 1 a round, gamma = 1/6: sqrt(100 ln(1e5) / (2 ln(1.25e5 / 6)))
    assert hellinger.stated(100) == pytest.approx(7.6088, abs=1e-3)
    budgets = {
        cell.work.content["budget"]["epsilon"]
        for cell in made["hw-1"].cells
        if "sigma" not in cell.row
    }
    assert budgets == {hellinger.stated(100)}


@pytest.mark.parametrize("sigma", hellinger.SIGMAS)
def test_figure_6_has_the_same_noise_published_and_sound(
    sigma: float, made: dict[str, PaperTable]
) -> None:
    for row in (f"sigma = {sigma:g}", f"sigma = {sigma:g}, published"):
        section = parse(cell_of(made["hw-fig6"], row, "IID").work.content).algorithm
        uploads = algorithms.from_name(section.name, **section.options()).updates
        assert uploads is not None
        assert uploads.stddev() == pytest.approx(sigma)


def test_published_claims_a_number_and_proves_nothing(made: dict[str, PaperTable]) -> None:
    outcome = run(made["hw-1"], "HW-DPFL, published", "non-IID", *FEW)
    assert isinstance(outcome.claimed, float)
    assert outcome.proven == "unbounded"


def test_sound_stays_inside_the_stated_epsilon_and_draws_a_curve_of_losses(
    made: dict[str, PaperTable],
) -> None:
    outcome = run(made["hw-fig4"], "b = 10", "non-IID", *FEW)
    assert isinstance(outcome.proven, float)
    assert outcome.proven <= hellinger.stated(hellinger.CURVE_ROUNDS)
    losses = outcome.series["training loss"]
    assert outcome.value == losses[-1]
    assert len(losses) == 2
    assert losses != outcome.series["loss"]


def test_a_training_loss_is_the_mean_over_images_that_clients_train_on(
    made: dict[str, PaperTable], tmp_path: Path
) -> None:
    table = made["hw-fig6"].scaled(["data.name=mnist-sample", "evaluate.every=1", *FEW])
    cell = cell_of(table, "sigma = 0.2", "IID")
    outcome = cell.work.run(3, None)
    result = parse({**cell.work.content, "seed": 3}).run(tmp_path / "run", workers=1)
    train, chosen = dpfl.data.sample().train, np.random.default_rng(3).permutation(8000)[:6000]
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(result.module(train.x[chosen]), train.y[chosen])
    assert outcome.value == pytest.approx(float(loss), rel=1e-4)


@pytest.mark.parametrize("sigma", [*hellinger.SIGMAS, *hellinger.NEEDED])
def test_a_row_with_a_sigma_adds_that_deviation(sigma: float, made: dict[str, PaperTable]) -> None:
    name, row = (
        ("hw-1", "HW-DPFL, published") if sigma in hellinger.SIGMAS else ("hw-noise", "published")
    )
    for cell in made[name].cells:
        if cell.row == f"{row}, sigma = {sigma:g}":
            section = parse(cell.work.content).algorithm
            uploads = (
                algorithms.from_name(section.name, **section.options()).for_client_size(600).updates
            )
            assert uploads.stddev() == pytest.approx(sigma)
