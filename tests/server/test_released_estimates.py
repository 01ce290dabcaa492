"""Gradients and slopes that are read off releases."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dpfl.server.released_estimates import LAG, mean_gradient, noise_energy
from dpfl.server.steps.adaptive import AliSteps
from tests.server.observations import FACTS, D, learnt, quadratic


@pytest.mark.parametrize("curvature", [0.3, 0.02])
def test_mu_of_released_gradients_is_the_curvature(curvature: float) -> None:
    """Two local steps see the curvature a little less than one would: (1 - (1 - eta a)^2) / (2
    eta).
    """
    seen = (1 - (1 - 0.5 * curvature) ** 2) / (2 * 0.5)
    assert float(learnt(AliSteps(), quadratic(0, LAG, curvature))["mu"]) == pytest.approx(
        seen, rel=0.35, abs=0.05
    )


def test_mu_is_the_rise_of_the_noisy_mean_gradient_without_its_noise_over_the_way() -> None:
    """By hand, from the first and the third round; and a square below the noise's own deviation
    counts as that.
    """
    rounds, p = quadratic(3, 3, 0.2), np.array(FACTS.weights) / sum(FACTS.weights)
    first, last = (
        p @ np.stack([one.updates[i].double().numpy() / (-0.5 * 2) for i in range(3)])
        for one in rounds[::2]
    )
    noise = 2 * sum(
        share**2 * 1.1**2 / batch**2 * D / 2 for share, batch in zip(p, FACTS.batches, strict=True)
    )
    run = float((rounds[2].vector - rounds[0].vector).norm())
    wanted = np.sqrt(((last - first) ** 2).sum() - noise) / run
    assert float(learnt(AliSteps(), rounds)["mu"]) == pytest.approx(wanted, rel=1e-4)
    still = [rounds[0], replace(rounds[2], updates=rounds[0].updates)]
    assert float(learnt(AliSteps(), still)["mu"]) == pytest.approx(
        np.sqrt(np.sqrt(2 / D) * noise) / run, rel=1e-4
    )


def test_the_noise_of_the_mean_gradient_is_what_is_subtracted() -> None:
    energies = [
        float(mean_gradient(one)[0].square().sum()) for one in quadratic(1, 30, curvature=0.0)
    ]
    assert np.mean(energies) == pytest.approx(mean_gradient(quadratic(1, 1, 0.0)[0])[1], rel=0.05)


def test_the_gradient_to_compare_with_is_renewed_after_a_while() -> None:
    rounds = quadratic(0, LAG + 2, 0.1)
    early, late = learnt(AliSteps(), rounds[:LAG]), learnt(AliSteps(), rounds)
    assert torch.equal(early["model"], rounds[0].vector)
    assert torch.equal(late["model"], rounds[LAG].vector)


def test_noise_is_divided_by_what_clients_divide_by_and_not_by_the_batch() -> None:
    (one,) = quadratic(1, 1, 0.0)
    constant = replace(one, step_facts=replace(FACTS, divisors=(15.0,) * 3))
    assert noise_energy(constant, 0) == pytest.approx(16 * noise_energy(one, 0))
