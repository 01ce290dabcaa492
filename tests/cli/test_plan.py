"""`dpfl plan --rounds`: the trade-off as a table, as a picture, as JSON, and as an experiment that stays inside epsilon."""

from __future__ import annotations

import json

import pytest

from dpfl.experiment import load
from tests.cli.test_app import dpfl, refused

PLAN = ["plan", "--epsilon", "4", "--rounds", "12", "--sampling-rate", "0.2", "--tau", "2"]


def test_the_trade_off_is_a_table_with_a_recommendation_and_what_was_assumed(capsys, tmp_path):
    code, out, _ = dpfl(capsys, *PLAN, "--sizes", "900,600,100", "--parameters", "1000", "--png", tmp_path / "plan.png")
    assert code == 0
    for word in ("tau 2", "Recommended", "learning rate", "rdp-classic", "rule of thumb", "plan for all"):
        assert word in out
    assert (tmp_path / "plan.png").read_bytes()[:4] == b"\x89PNG"


def test_the_trade_off_as_json_holds_every_cell(capsys):
    _, out, _ = dpfl(capsys, *PLAN, "--clients", "3", "--size", "100", "--json")
    found = json.loads(out)
    assert found["question"]["sizes"] == [100, 100, 100]
    assert [(cell["sampling_rate"], cell["tau"], cell["iterations"]) for cell in found["choices"]] == [(0.2, 2, 24)]
    assert found["recommended"]["noise_multiplier"] == found["choices"][0]["noise_multiplier"]
    assert set(found["iterations_bought"]) == {"pld", "rdp", "rdp-classic"}


def test_the_written_experiment_runs_all_of_its_rounds_inside_epsilon(capsys, tmp_path):
    file = tmp_path / "experiment.toml"
    dpfl(capsys, *PLAN, "--clients", "4", "--size", "2000", "--parameters", "12730", "--write", file)
    assert load(file).data.clients == 4
    small = ["--set", "model.name=mlp", "--set", "model.hidden=16", "--workers", "1", "--quiet", "--out", tmp_path / "run"]
    code, out, _ = dpfl(capsys, "run", file, *small, "--json")
    assert code == 0
    result = json.loads(out.strip().splitlines()[-1])
    assert (result["rounds"], result["iterations"], result["stopped_by"]) == (12, 24, "rounds")
    assert 3.98 < result["privacy"]["proven"] <= 4.0
    assert all(epsilon <= 4.0 for epsilon in result["privacy"]["per_client"].values())
    assert "exists already" in refused(capsys, *PLAN, "--write", file)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--iterations", "10"], "--iterations is found"),
        (["--noise-multiplier", "1"], "--noise-multiplier is found"),
        (["--sizes", "a,b"], "whole numbers"),
        (["--sizes", "10", "--clients", "1"], "either"),
        (["--clients", "3"], "go together"),
        (["--tau", "0"], "tau must be at least 1"),
        (["--accountant", "gdp-clt"], "cannot guard"),
    ],
)
def test_what_does_not_fit_a_plan_for_rounds_is_refused_in_one_sentence(capsys, words, says):
    assert says in refused(capsys, *PLAN, *words)


def test_options_of_the_trade_off_need_rounds(capsys):
    assert "--parameters needs --rounds" in refused(capsys, "plan", "--epsilon", "2", "--iterations", "5", "--parameters", "3")
    assert "needs --epsilon" in refused(capsys, "plan", "--rounds", "5")
