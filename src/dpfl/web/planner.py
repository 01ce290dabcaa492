"""The planner's page: what a budget buys while its sliders move, and the experiment that follows.

While a slider moves, the table is estimated by the central limit theorem, and the recommendation is
computed by the accountant that limits a run. When it rests, every cell is computed and cached.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import lru_cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dpfl.bad_values import require_name
from dpfl.config.experiment import parse
from dpfl.data.published_images import SHAPES
from dpfl.models import from_name
from dpfl.planning.noise_choices import PlanningQuestion, sketch_choices
from dpfl.planning.speed import ClientWork
from dpfl.planning.tradeoff import Tradeoff, sketch, tradeoff
from dpfl.privacy.accounting.budget import MAX_ROUNDS
from dpfl.views.plan_view import LEGEND, STEPS_NOTE, STEPS_TITLE, PlanView

DATA = ("mnist-sample", "mnist", "fashion-mnist", "cifar10")
MODELS = ("cnn", "mlp", "linear", "scattering-linear")
CURVE = tuple(round(0.005 * 1.15**step, 5) for step in range(38))
"""Sampling rates of the curve, up to 0.88; 1 is the last."""


ESTIMATE = {
    "title": "a first estimate, may still change",
    "sentence": "Estimated by the central limit theorem while you move a slider; computed when "
    "you stop.",
}
EXACT = {
    "title": "computed by the accountant",
    "sentence": "Computed by the accountant that limits the run.",
}
"""How the table was computed. Only this page shows estimates."""


class PlanRequest(BaseModel):
    """The request of the planner's page. Other keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    epsilon: float = Field(gt=0, le=100)
    delta: float = Field(default=1e-5, gt=0, lt=1)
    rounds: int = Field(ge=1, le=MAX_ROUNDS)
    clients: int = Field(default=10, ge=1, le=10_000)
    size: int = Field(default=800, ge=1, le=10_000_000)
    data: Literal[DATA] = "mnist-sample"  # type: ignore[valid-type]
    model: str = Field(default="scattering-linear", max_length=40)
    seed: int = Field(default=0, ge=0, lt=2**53)
    exact: bool = False


class StartRequest(PlanRequest):
    """A plan to run, with the name of the run."""

    name: str = Field(max_length=80)


def question_of(request: PlanRequest) -> PlanningQuestion:
    """Turns a request into a question for the planner.

    Args:
        request: The budget, the clients and the model.

    Returns:
        The question, with the number of parameters of the model.

    Raises:
        DpflError: If the planner does not know the model.
    """
    sizes = (request.size,) * request.clients
    return PlanningQuestion(
        request.epsilon,
        request.rounds,
        request.delta,
        sizes,
        parameters=parameters(request.model, request.data),
    )


@lru_cache(64)
def parameters(model: str, data: str) -> int:
    """Counts the parameters of a model.

    Args:
        model: One of `MODELS`.
        data: One of `DATA`, for the shape of a sample and the number of classes.

    Returns:
        Their number.

    Raises:
        DpflError: If the planner does not know the model.
    """
    require_name("model of the planner", model, MODELS)
    return ClientWork(from_name(model), *SHAPES[data]).parameters


@lru_cache(256)
def find_plan(question: PlanningQuestion, exact: bool) -> Tradeoff:
    """Plans a budget; equal questions are planned once.

    Args:
        question: The budget, the clients and the model.
        exact: Whether every cell is computed by the accountant, or estimated.

    Returns:
        The table and its recommendation.
    """
    return tradeoff(question) if exact else sketch(question)


@lru_cache(256)
def view_of(question: PlanningQuestion, exact: bool) -> PlanView:
    """Puts a plan into words; counting the steps that each accountant allows takes a while.

    Args:
        question: The budget, the clients and the model.
        exact: As for `find_plan`.

    Returns:
        The plan in words.
    """
    return PlanView.of(find_plan(question, exact))


def answer(request: PlanRequest) -> dict[str, Any]:
    """Answers for the planner's page.

    Args:
        request: The budget, the clients and the model.

    Returns:
        The plan in the words of `PlanView`, how it was computed, and the curve of total noise.

    Raises:
        DpflError: If no plan stays within the budget.
    """
    question = question_of(request)
    plan = find_plan(question, request.exact)
    view, taus = view_of(question, request.exact), sorted({cell.tau for cell in plan.choices})
    curve = sketch_choices(question, (*CURVE, 1.0), taus)
    return {
        "exact": request.exact,
        "status": EXACT if request.exact else ESTIMATE,
        "plan": asdict(view)
        | {
            "legend": LEGEND,
            "steps": {
                "title": STEPS_TITLE,
                "note": STEPS_NOTE,
                "bars": [{"label": bar.label, "steps": bar.steps} for bar in view.steps],
            },
        },
        "curve": {
            "q": [*CURVE, 1.0],
            "total": {tau: [choice.total for choice in curve if choice.tau == tau] for tau in taus},
            "sentence": view.curve,
        },
    }


def experiment(request: PlanRequest) -> dict[str, Any]:
    """Writes the recommended run as an experiment.

    Args:
        request: The budget, the clients and the model.

    Returns:
        The content of an experiment file.

    Raises:
        DpflError: If no experiment has these values.
    """
    plan_content = find_plan(question_of(request), True).experiment()
    own = {
        "data": {"name": request.data, "partition": "dirichlet", "clients": request.clients},
        "model": {"name": request.model},
    }
    content = {"seed": request.seed} | plan_content | own
    parse(content)
    return content
