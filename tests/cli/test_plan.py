"""`dpfl plan --rounds`: the trade-off as a table, as a picture, as JSON, and as an experiment that
stays inside epsilon.
"""

from __future__ import annotations

import json

import pytest

from dpfl.config.experiment import load
from tests.cli.command_line import dpfl, refused

PLAN = ["plan", "--epsilon", "4", "--rounds", "12", "--sampling-rate", "0.2", "--tau", "2"]


def test_the_trade_off_is_a_table_with_a_recommendation_and_what_was_assumed(capsys, tmp_path):
    code, out, _ = dpfl(
        capsys,
        *PLAN,
        "--sizes",
        "900,600,100",
        "--parameters",
        "1000",
        "--png",
        tmp_path / "plan.png",
    )
    assert code == 0
    for word in (
        "tau 2",
        "Recommended",
        "learning rate",
        "rdp-classic",
        "rule of thumb",
        "hold for all",
    ):
        assert word in out
    assert (tmp_path / "plan.png").read_bytes()[:4] == b"\x89PNG"


def test_the_trade_off_as_json_holds_every_cell(capsys):
    _, out, _ = dpfl(capsys, *PLAN, "--clients", "3", "--size", "100", "--json")
    found = json.loads(out)
    assert found["question"]["sizes"] == [100, 100, 100]
    assert [
        (cell["sampling_rate"], cell["tau"], cell["iterations"]) for cell in found["choices"]
    ] == [(0.2, 2, 24)]
    assert found["recommended"]["noise_multiplier"] == found["choices"][0]["noise_multiplier"]
    assert set(found["iterations_bought"]) == {"pld", "rdp", "rdp-classic"}


def test_the_written_experiment_runs_all_of_its_rounds_inside_epsilon(capsys, tmp_path):
    file = tmp_path / "experiment.toml"
    dpfl(
        capsys, *PLAN, "--clients", "4", "--size", "2000", "--parameters", "12730", "--write", file
    )
    assert load(file).data.clients == 4
    small = [
        "--set",
        "model.name=mlp",
        "--set",
        "model.hidden=16",
        "--workers",
        "1",
        "--quiet",
        "--out",
        tmp_path / "run",
    ]
    code, out, _ = dpfl(capsys, "run", file, *small, "--json")
    assert code == 0
    result = json.loads(out.strip().splitlines()[-1])
    assert (result["rounds"], result["iterations"], result["stopped_by"]) == (12, 24, "rounds")
    assert 3.98 < result["privacy"]["proven"] <= 4.0
    assert all(epsilon <= 4.0 for epsilon in result["privacy"]["per_client"].values())
    assert "exists already" in refused(capsys, *PLAN, "--write", file)


def test_a_plan_for_secure_sums_is_written_as_one_and_runs(capsys, tmp_path):
    """The noise is that of one party: the same multiplier, a rate sqrt(m - t) times as high, and
    the statement of sums.
    """
    plan, file = (
        ["plan", "--epsilon", "4", "--rounds", "6", "--sampling-rate", "0.2"],
        tmp_path / "experiment.toml",
    )
    sizes = ["--clients", "10", "--size", "200", "--parameters", "12730", "--json"]
    shared = json.loads(
        dpfl(capsys, *plan, *sizes, "--survivors", "8", "--colluders", "1", "--write", file)[1]
    )
    alone = json.loads(dpfl(capsys, *plan, *sizes, "--tau", "1")[1])
    assert shared["question"]["shared"] == {"survivors": 8, "colluders": 1}
    assert {cell["tau"] for cell in shared["choices"]} == {1}
    assert shared["recommended"]["noise_multiplier"] == alone["recommended"]["noise_multiplier"]
    assert shared["recommended"]["rate"] == pytest.approx(
        alone["recommended"]["rate"] * 7**0.5, rel=0.01
    )
    assert (
        "sums over at least 8 clients only, and 1 of them may collude with it. Each client adds 1/7"
        in shared["assumptions"][-1]
    )
    assert (
        "under secure aggregation"
        in dpfl(capsys, *plan, *sizes[:-1], "--survivors", "10", "--colluders", "0")[1]
    )
    small = [
        "--set",
        "model.name=mlp",
        "--set",
        "model.hidden=16",
        "--workers",
        "1",
        "--quiet",
        "--out",
        tmp_path / "run",
    ]
    code, out, err = dpfl(capsys, "run", file, *small, "--json")
    assert code == 0, err
    result = json.loads(out.strip().splitlines()[-1])
    assert (result["rounds"], result["stopped_by"]) == (6, "rounds")
    assert 3.98 < result["privacy"]["proven"] <= 4.0
    assert (
        "up to 1 clients together, who see sums over at least 8" in result["privacy"]["adversary"]
    )


def test_a_named_model_is_counted_timed_and_written_down(capsys, tmp_path):
    file = tmp_path / "experiment.toml"
    words = [
        "--model",
        "mlp",
        "--data",
        "emnist-letters",
        "--seconds-per-round",
        "60",
        "--clients",
        "4",
        "--size",
        "20",
    ]
    code, out, _ = dpfl(capsys, *PLAN, *words, "--json", "--write", file)
    found = json.loads(out)
    assert code == 0
    assert found["question"]["parameters"] == 785 * 200 + 201 * 26
    assert found["question"]["samples_per_second"] > 0
    assert "random numbers of shape 1 x 28 x 28" in found["assumptions"][-1]
    written = load(file)
    assert (written.data.name, written.data.clients, written.model.name) == (
        "emnist-letters",
        4,
        "mlp",
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--iterations", "10"], "--iterations follows"),
        (["--noise-multiplier", "1"], "--noise-multiplier follows"),
        (["--sizes", "a,b"], "whole numbers"),
        (["--sizes", "10", "--clients", "1"], "either"),
        (["--clients", "3"], "go together"),
        (["--tau", "0"], "tau must be at least 1"),
        (["--accountant", "gdp-clt"], "cannot guard"),
        (["--model", "mlp"], "needs the shape"),
        (["--model", "mlp", "--shape", "1,x"], "whole numbers"),
        (["--model", "mlp", "--data", "mnits"], "did you mean 'mnist'"),
        (
            ["--model", "mlp", "--data", "mnist", "--shape", "1,28,28"],
            "cannot be combined with --data",
        ),
        (["--model", "mlp", "--data", "mnist", "--parameters", "3"], "either"),
        (["--data", "mnist"], "needs --model"),
        (["--seconds-per-round", "3", "--sizes", "10"], "go together"),
        (["--survivors", "8"], "needs the clients' sizes"),
        (["--clients", "10", "--size", "9", "--colluders", "1"], "one step per round"),
        (["--clients", "10", "--size", "9", "--survivors", "5"], "two different sets"),
        (["--clients", "10", "--size", "9", "--survivors", "0"], "nobody is left"),
        (["--clients", "2", "--size", "9", "--colluders", "0"], "3 to 100 clients"),
    ],
)
def test_what_does_not_fit_a_plan_for_rounds_is_refused_in_one_sentence(capsys, words, says):
    assert says in refused(capsys, *PLAN, *words)


def test_options_of_the_trade_off_need_rounds(capsys):
    assert "--parameters needs --rounds" in refused(
        capsys, "plan", "--epsilon", "2", "--iterations", "5", "--parameters", "3"
    )
    assert "--survivors needs --rounds" in refused(
        capsys, "plan", "--epsilon", "2", "--iterations", "5", "--survivors", "3"
    )
    assert "needs --epsilon" in refused(capsys, "plan", "--rounds", "5")


AMOUNTS = [
    "plan",
    "--delta",
    "1e-5",
    "--sampling-rate",
    "0.015",
    "--noise-multiplier",
    "1.1",
    "--json",
]


@pytest.mark.parametrize(
    ("words", "iterations"),
    [([], 716), (["--accountant", "rdp"], 553), (["--accountant", "rdp-classic"], 314)],
)
def test_plan_says_how_many_iterations_epsilon_buys(capsys, words, iterations):
    code, out, _ = dpfl(capsys, *AMOUNTS, "--epsilon", "2", *words)
    assert code == 0
    assert json.loads(out)["iterations"] == iterations


@pytest.mark.parametrize(
    ("accountant", "epsilon"), [("pld", 1.3571), ("rdp", 1.6121), ("rdp-classic", 2.0050)]
)
def test_plan_says_what_iterations_cost(capsys, accountant, epsilon):
    _, out, _ = dpfl(capsys, *AMOUNTS, "--iterations", "317", "--accountant", accountant)
    assert json.loads(out)["epsilon"] == pytest.approx(epsilon, abs=5e-4)


def test_plan_says_how_much_noise_epsilon_needs(capsys):
    _, out, _ = dpfl(
        capsys, "plan", "--epsilon", "2", "--iterations", "317", "--sampling-rate", "0.05", "--json"
    )
    made = json.loads(out)
    assert made["noise_multiplier"] == pytest.approx(1.989, abs=1e-3)
    assert made["epsilon"] <= 2
    assert made["proven"] is True


def test_plan_marks_the_limit_theorem_as_not_proven(capsys):
    _, out, _ = dpfl(capsys, *AMOUNTS[:-1], "--iterations", "317", "--accountant", "gdp-clt")
    assert "not proven" in out
    _, out, _ = dpfl(capsys, *AMOUNTS, "--iterations", "317", "--accountant", "gdp-clt")
    assert json.loads(out)["proven"] is False
