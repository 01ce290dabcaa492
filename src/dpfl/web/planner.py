"""The planner's page: what a budget buys while its sliders move, and the experiment that follows.

While a slider moves, the table is estimated by the central limit theorem, and the recommendation is
computed by the accountant that limits a run. When it rests, every cell is computed and cached.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dpfl.config.experiment import parse
from dpfl.data.catalog import SHAPES
from dpfl.errors import DpflError
from dpfl.models import from_name
from dpfl.planning.noise_choices import PlanningQuestion, sketched
from dpfl.planning.speed import ClientWork
from dpfl.planning.tradeoff import Tradeoff, sketch, tradeoff
from dpfl.privacy.accounting.budget import MAX_ROUNDS

DATA = ("mnist-sample", "mnist", "fashion-mnist", "cifar10")
MODELS = ("cnn", "mlp", "linear", "scattering-linear")
CURVE = tuple(round(0.005 * 1.15**step, 5) for step in range(38))
"""Sampling rates of the curve, up to 0.88; 1 is the last."""


class PlanRequest(BaseModel):
    """What the page asks for. Other keys are refused."""

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


def question(wanted: PlanRequest) -> PlanningQuestion:
    sizes = (wanted.size,) * wanted.clients
    return PlanningQuestion(
        wanted.epsilon,
        wanted.rounds,
        wanted.delta,
        sizes,
        parameters=parameters(wanted.model, wanted.data),
    )


@lru_cache(64)
def parameters(model: str, data: str) -> int:
    if model not in MODELS:
        raise DpflError(
            f"The planner knows the models {', '.join(MODELS)}. Name others in the experiment file."
        )
    return ClientWork(from_name(model), *SHAPES[data]).parameters


@lru_cache(256)
def find_choice(asked: PlanningQuestion, exact: bool) -> Tradeoff:
    return tradeoff(asked) if exact else sketch(asked)


@lru_cache(256)
def bought(asked: PlanningQuestion, exact: bool) -> dict[str, int]:
    return find_choice(asked, exact).bought


def answer(wanted: PlanRequest) -> dict[str, Any]:
    asked = question(wanted)
    plan = find_choice(asked, wanted.exact)
    chosen, taus = plan.recommended, sorted({choice.tau for choice in plan.choices})
    curve = sketched(asked, (*CURVE, 1.0), taus)
    return {
        "exact": wanted.exact,
        "recommended": {
            "sampling_rate": chosen.sampling_rate,
            "tau": chosen.tau,
            "noise_multiplier": chosen.noise_multiplier,
            "iterations": chosen.iterations,
            "rate": plan.rate,
            "total": chosen.total,
            "samples": chosen.samples(wanted.size),
            "parameters": asked.parameters,
        },
        "bought": bought(asked, wanted.exact),
        "cells": [
            {
                "q": cell.sampling_rate,
                "tau": cell.tau,
                "noise": cell.noise_multiplier,
                "per_step": cell.per_step,
                "total": cell.total,
                "chosen": cell is chosen,
            }
            for cell in plan.choices
        ],
        "curve": {
            "q": [*CURVE, 1.0],
            "total": {tau: [one.total for one in curve if one.tau == tau] for tau in taus},
        },
        "assumptions": list(plan.assumptions),
        "warning": f"Lower delta: {wanted.delta:g} is not below one over the number of samples "
        "per client."
        if wanted.delta * wanted.size >= 1
        else None,
    }


def experiment(wanted: PlanRequest) -> dict[str, Any]:
    """Writes the recommended run as an experiment.

    Args:
        wanted: The budget and the clients.

    Returns:
        The content of an experiment file.

    Raises:
        DpflError: If no experiment has these values.
    """
    planned = find_choice(question(wanted), True).experiment()
    own = {
        "data": {"name": wanted.data, "partition": "dirichlet", "clients": wanted.clients},
        "model": {"name": wanted.model},
    }
    content = {"seed": wanted.seed} | planned | own
    parse(content)
    return content
