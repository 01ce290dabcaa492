"""The planner's page: an estimate that is near, and an experiment that follows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpfl.planning.noise_choices import PlanningQuestion
from dpfl.planning.tradeoff import sketch, tradeoff
from dpfl.privacy import Poisson, accountant
from dpfl.views.plan_view import PlanSetting, PlanView
from dpfl.web import planner


@pytest.mark.parametrize(("epsilon", "rounds"), [(2.0, 100), (4.0, 80)])
def test_a_sketch_is_near_and_its_noise_is_enough(epsilon: float, rounds: int) -> None:
    asked = PlanningQuestion(epsilon, rounds, sizes=(600,) * 10)
    quick, whole = sketch(asked), tradeoff(asked)
    chosen = quick.recommendation
    assert chosen.total <= 1.06 * whole.recommendation.total
    assert (
        accountant("pld").epsilon(
            {Poisson(chosen.sampling_rate).event(chosen.noise_multiplier, 1): chosen.iterations},
            1e-5,
        )
        <= epsilon
    )
    for near, true in zip(quick.choices, whole.choices, strict=True):
        assert near.total == pytest.approx(true.total, rel=0.25)


def test_a_plan_is_an_experiment(runs: Path) -> None:
    wanted = planner.PlanRequest(epsilon=2.0, rounds=50, clients=5, size=300, model="linear")
    made = planner.experiment(wanted)
    assert made["algorithm"]["name"] == "auto"
    assert made["budget"] == {"epsilon": 2.0, "delta": 1e-5, "rounds": 50}


def test_the_page_lays_out_the_words_of_the_plan() -> None:
    request = planner.PlanRequest(epsilon=2.0, rounds=50, clients=5, size=300, delta=0.01)
    answer = json.loads(json.dumps(planner.answer(request)))
    view = PlanView.of(planner.find_plan(planner.question_of(request), False))
    plan = answer["plan"]
    settings = [PlanSetting(**setting).text for setting in plan["settings"]]
    assert f"{plan['lead']}: {', '.join(settings)}." == view.recommendation
    assert tuple(plan["details"] + plan["warnings"]) == view.details + view.warnings
    assert plan["warnings"], "a delta above 1 / 300"
    assert answer["curve"]["sentence"] == view.curve
    assert answer["status"] == planner.ESTIMATE
    bars = plan["steps"]["bars"]
    assert bars[0]["label"] == "pld, which limits the run"
    assert [one["steps"] for one in bars] == [one.steps for one in view.steps]
    assert bars[0]["steps"] >= bars[1]["steps"] >= bars[2]["steps"]
