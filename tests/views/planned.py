"""A plan made by hand: two sampling rates, two taus, and clients of two sizes."""

from __future__ import annotations

from dpfl.planning.noise_choices import NoiseChoice, PlanningQuestion
from dpfl.planning.tradeoff import Tradeoff


def tradeoff(**changes: object) -> Tradeoff:
    asked = {"sizes": (600, 300, 600), "parameters": 100, "samples_per_round": 400.0} | changes
    question = PlanningQuestion(4.0, 20, **asked)  # type: ignore[arg-type]
    choices = tuple(
        NoiseChoice(rate, tau, noise, 20 * tau)
        for rate, tau, noise in ((0.1, 1, 0.8), (0.1, 2, 0.9), (0.5, 1, 2.5), (0.5, 2, 3.5))
    )
    return Tradeoff(question, choices, choices[1])
