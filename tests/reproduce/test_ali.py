"""The tables of ALI-DPFL as data: printed numbers, budgets, and runs that are the same."""

from __future__ import annotations

import pytest

from dpfl import algorithms, models
from dpfl.config.experiment import parse
from dpfl.data import partition
from dpfl.privacy import Poisson, accountant, affordable
from dpfl_papers import ali, ali_wide

TABLES = ali.tables() | ali_wide.tables()


def cell(table: str, group: str, row: str, column: str):
    found = [
        c
        for c in TABLES[table].cells
        if (c.group, c.row) == (group, row) and c.column.startswith(column)
    ]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize(
    ("table", "group", "row", "column", "printed"),
    [
        ("ali-2", "MNIST", "PE-DPFL", "R_s = 2 R_c", 80.12),
        ("ali-2", "CIFAR-10", "ALI-DPFL", "R_s = R_c / 5", 53.54),
        ("ali-3", "MNIST", "ALI-DPFL", "R_s = R_c,", 97.59),
        ("ali-3", "Fashion-MNIST", "tau = 1", "R_s = R_c,", 83.71),
        ("ali-3", "CIFAR-10", "ALI-DPFL", "R_s = R_c / 5", 55.67),
        ("ali-4", "MNIST", "tau = 5", "R_s = R_c / 2", 98.85),
        ("ali-4", "CIFAR-10", "tau = 10", "R_s = R_c / 5", 54.55),
        ("ali-5", "Fashion-MNIST", "tau = 3", "IID", 89.46),
        ("ali-5", "Fashion-MNIST", "ALI-DPFL", "Dir(1)", 86.12),
    ],
)
def test_printed_numbers_are_carried_over(table, group, row, column, printed):
    assert cell(table, group, row, column).printed == printed


@pytest.mark.parametrize("steps", sorted(set(ali.BOUGHT.values())))
def test_the_budget_of_a_column_allows_the_papers_steps_and_not_one_more(steps):
    event = Poisson(ali.SAMPLING_RATE).event(ali.NOISE, 1)
    assert affordable({}, event, ali.proven(steps), ali.DELTA, accountant("pld")) == steps


def test_the_papers_epsilon_is_the_classic_one_of_its_steps_up_to_the_overshoot_of_its_bisection():
    """But for 5 x 317 and 5 x 598, which it takes for what 3.75 and 5.25 buy."""
    event = Poisson(ali.SAMPLING_RATE).event(ali.NOISE, 1)
    found = {
        epsilon: accountant("rdp-classic").epsilon({event: steps}, ali.DELTA)
        for epsilon, steps in ali.BOUGHT.items()
    }
    assert found.pop(3.75) == pytest.approx(3.806, abs=1e-3)
    assert found.pop(5.25) == pytest.approx(5.233, abs=1e-3)
    assert list(found.values()) == pytest.approx(list(found), abs=0.01)


@pytest.mark.parametrize("name", [name for name in TABLES if "fig" not in name])
def test_every_cell_is_an_experiment_that_can_be_built(name):
    for one in TABLES[name].cells:
        experiment = parse(one.work.content)
        assert algorithms.from_name(experiment.algorithm.name, **experiment.algorithm.options())
        assert models.from_name(experiment.model.name, **experiment.model.options())
        assert partition.parse(experiment.data.partition, **experiment.data.partition_options())


def test_a_run_that_ends_with_its_privacy_is_one_run_in_every_table():
    """177 steps at tau = 2 take 89 rounds, whether 158 or 317 were allowed."""
    ours = (
        cell("ali-2", "MNIST", "tau = 2", "R_s = R_c,"),
        cell("ali-3", "MNIST", "tau = 2", "R_s = 2 R_c"),
    )
    assert ours[0].digest(0) == ours[1].digest(0)
    assert ours[0].digest(0) != ours[0].digest(1)
    theirs = (
        cell("ali-2", "MNIST", "tau = 1", "R_s = R_c,"),
        cell("ali-3", "MNIST", "tau = 1", "R_s = 2 R_c"),
    )
    assert theirs[0].digest(0) != theirs[1].digest(0)


def test_figures_are_made_of_the_cells_of_the_tables():
    of_tables = {
        one.digest(0) for name in ("ali-2", "ali-3", "ali-4") for one in TABLES[name].cells
    }
    for figure in ("ali-fig1", "ali-fig4", "ali-fig5"):
        assert {one.digest(0) for one in TABLES[figure].cells} <= of_tables


def test_the_authors_network_has_the_same_columns_with_their_own_runs():
    for name in ("ali-2", "ali-3", "ali-4"):
        small, wide = (
            {c.place: c for c in TABLES[table].cells} for table in (name, f"{name}-wide")
        )
        assert set(wide) <= set(small)
        for place, one in wide.items():
            assert one.work.content["model"]["name"] == "cnn-wide"
            assert one.printed == small[place].printed
            assert one.work.scaled(["model.name=cnn"]).content == small[place].work.content
    assert cell("ali-5-wide", "Fashion-MNIST", "tau = 3", "IID").printed == 89.46
    assert cell("ali-2-wide", "MNIST", "ALI-DPFL", "R_s = R_c / 2").printed == 97.58


def test_the_two_repairs_and_the_two_readings_have_rows_of_their_own():
    made = {
        row: cell("ali-2", "MNIST", row, "R_s = R_c / 2").work.content["algorithm"]
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
    code = cell("ali-2", "MNIST", ali.CODE, "R_s = R_c / 2").work
    assert (code.shows, code.content["data"]["merged"], code.content["data"]["partition"]) == (
        "best",
        True,
        "closed",
    )
    release = algorithms.from_name(**made[ali.CODE]).samples
    assert (release.divisor, release.clip.clip_norm, release.divide_by_drawn) == (64.0, 0.1, False)


def test_readings_of_a_level_change_one_thing_each_and_the_first_is_that_of_the_table():
    first, *rest = TABLES["ali-levels"].cells
    assert first.digest(0) == cell("ali-3", "MNIST", "tau = 1", "R_s = R_c,").digest(0)
    assert first.printed == cell("ali-3", "MNIST", "tau = 1", "R_s = R_c,").printed
    assert len({one.digest(0) for one in (first, *rest)}) == 1 + len(rest)
