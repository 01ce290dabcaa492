"""The tables of ALI-DPFL as data: printed numbers, budgets, and runs that are the same."""

from __future__ import annotations

import pytest

from dpfl import algorithms, models
from dpfl.config.experiment import parse
from dpfl.data import partition
from dpfl.privacy import Poisson, accountant, affordable
from dpfl_papers import ali
from dpfl_papers.ali_printed import STEPS_OF_EPSILON
from tests.dpfl_papers.conftest import TABLES, cell_at


@pytest.mark.parametrize("steps", sorted(set(STEPS_OF_EPSILON.values())))
def test_the_budget_of_a_column_allows_the_papers_steps_and_not_one_more(steps):
    event = Poisson(ali.SAMPLING_RATE).event(ali.NOISE, 1)
    assert affordable({}, event, ali.proven(steps), ali.DELTA, accountant("pld")) == steps


@pytest.mark.parametrize(
    "name", [name for name in TABLES if name.startswith("ali-") and "fig" not in name]
)
def test_every_cell_is_an_experiment_that_can_be_built(name):
    for one in TABLES[name].cells:
        experiment = parse(one.work.content)
        assert algorithms.from_name(experiment.algorithm.name, **experiment.algorithm.options())
        assert models.from_name(experiment.model.name, **experiment.model.options())
        assert partition.parse(experiment.data.partition, **experiment.data.partition_options())


def test_a_run_that_ends_with_its_privacy_is_one_run_in_every_table():
    """177 steps at tau = 2 take 89 rounds, whether 158 or 317 were allowed."""
    ours = (
        cell_at("ali-2", "MNIST", "tau = 2", "R_s = R_c,"),
        cell_at("ali-3", "MNIST", "tau = 2", "R_s = 2 R_c"),
    )
    assert ours[0].digest(0) == ours[1].digest(0)
    assert ours[0].digest(0) != ours[0].digest(1)
    theirs = (
        cell_at("ali-2", "MNIST", "tau = 1", "R_s = R_c,"),
        cell_at("ali-3", "MNIST", "tau = 1", "R_s = 2 R_c"),
    )
    assert theirs[0].digest(0) != theirs[1].digest(0)


def test_figures_are_made_of_the_cells_of_the_tables():
    of_tables = {
        one.digest(0) for name in ("ali-2", "ali-3", "ali-4") for one in TABLES[name].cells
    }
    for figure in ("ali-fig1", "ali-fig4", "ali-fig5"):
        assert {one.digest(0) for one in TABLES[figure].cells} <= of_tables


def test_the_two_repairs_and_the_two_readings_have_rows_of_their_own():
    made = {
        row: cell_at("ali-2", "MNIST", row, "R_s = R_c / 2").work.content["algorithm"]
        for row in ("ALI-DPFL", *ali.OWN)
    }
    policies = {row: algorithms.from_name(**options).steps for row, options in made.items()}
    assert {row: (steps.formula, steps.mu, steps.gamma) for row, steps in policies.items()} == {
        "ALI-DPFL": ("corrected", "released", 10.0),
        "ALI-DPFL, printed formula": ("printed", "released", 10.0),
        "ALI-DPFL, the code's formula": ("code", "released", 10.0),
        "ALI-DPFL, printed formula, mu paid": ("printed", "paid", 10.0),
        "ALI-DPFL, whole budget": ("corrected", "released", 10.0),
        "ALI-DPFL, published": ("printed", "raw", 10.0),
        "ALI-DPFL, published, the code": ("code", "steps", "raw"),
    }
    code = cell_at("ali-2", "MNIST", ali.CODE, "R_s = R_c / 2").work
    assert (code.shows, code.content["data"]["merged"], code.content["data"]["partition"]) == (
        "best",
        True,
        "closed",
    )
    release = algorithms.from_name(**made[ali.CODE]).samples
    assert (release.divisor, release.clip.clip_norm, release.divide_by_drawn) == (64.0, 0.1, False)
