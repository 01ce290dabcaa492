"""Step policies: tau from released values only in the sound ones, and the leak of the published
ones.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch

from dpfl.errors import DpflError
from dpfl.server.steps import ali_bounds
from dpfl.server.steps.adaptive import AliSteps, AlsSteps
from dpfl.server.steps.ali_bounds import AliInputs
from dpfl.server.steps.estimates import shares
from dpfl.server.steps.policy import RoundObservation, StepContext, StepFacts
from tests.server.observations import FACTS, D, learnt, quadratic


def now(
    memory: Mapping[str, torch.Tensor], iterations: int = 500, left: int = 400, tau: int = 2
) -> StepContext:
    return StepContext(FACTS, iterations, left, tau, memory)


def test_the_same_released_values_give_the_same_tau_whatever_the_data_said() -> None:
    rounds = quadratic(0, 12, 0.3)
    raw = {client: {"gradients": np.array(99.0), "distance": np.array(0.1)} for client in range(3)}
    whispered = [
        RoundObservation(one.step_facts, one.round, one.steps, one.vector, one.updates, raw)
        for one in rounds
    ]
    for policy in (AliSteps(), AlsSteps()):
        first, second = learnt(policy, rounds), learnt(policy, whispered)
        assert all(torch.equal(first[name], second[name]) for name in first)
        assert policy.next(now(first)) == policy.next(now(second))
        assert not policy.asks_raw


def raw_of(scale: float) -> dict[int, dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    values = {
        "losses": np.array(0.2),
        "gradients": np.array(scale),
        "distance": np.array(0.5),
        "last_step": np.array(scale),
    }
    return {client: values | {"gradient": rng.standard_normal(D) / D} for client in range(3)}


def test_the_published_tau_moves_with_values_that_no_noise_covers() -> None:
    seen = quadratic(0, 1, 0.3)[0]
    taus = []
    for scale in (0.001, 0.5):
        memory = AliSteps("code", 10.0, "raw").learn(
            replace(seen, again=lambda scale=scale: raw_of(scale)), {}
        )
        assert float(memory["mu"]) == pytest.approx(scale / 0.5)
        taus.append(AliSteps("code", 10.0, "raw").next(now(memory)))
    assert taus[0] != taus[1]
    policy, estimates = AlsSteps(estimates="raw"), []
    for scale in (0.1, 0.5):
        whispered = RoundObservation(FACTS, 0, 2, seen.vector, seen.updates, raw_of(scale))
        estimates.append(policy.learn(whispered, {})["estimates"])
    assert not torch.equal(*estimates)


@pytest.mark.parametrize("formula", ["printed", "code", "consistent", "corrected"])
def test_tau_is_that_of_the_formula(formula: ali_bounds.Formula) -> None:
    memory = {"mu": torch.tensor(0.4, dtype=torch.float64)}
    inputs = AliInputs(0.4, 1.0, 10.0, 1.1, D, 30.0, 100.0, 0.5)
    assert AliSteps(formula).next(now(memory)) == ali_bounds.next_tau(inputs, 50, 500, 400, formula)
    assert AliSteps(formula, mu=0.4).next(now({})) == AliSteps(formula).next(now(memory))


@pytest.mark.parametrize("policy", [AliSteps(), AlsSteps()])
def test_rounds_enough_for_all_of_the_privacy_mean_one_step_each(
    policy: AliSteps | AlsSteps,
) -> None:
    memory = learnt(policy, quadratic(0, 3, 0.3))
    assert policy.next(now(memory, iterations=50, left=30)) == 1
    assert policy.next(now({})) == 1, "nothing is known before the first round"
    assert policy.next(now(memory, left=1)) == 1
    assert policy.total(7) == 700


def test_a_policy_needs_a_number_of_rounds_and_known_estimates() -> None:
    endless = StepFacts(None, 0.5, 1.1, 1.0, D, (60.0,), (1.0,))
    with pytest.raises(DpflError, match=r"budget\.rounds"):
        AliSteps().next(StepContext(endless, 10, 10))
    with pytest.raises(DpflError, match="mu is released"):
        AliSteps(mu="guessed")
    with pytest.raises(DpflError, match="estimates is released"):
        AlsSteps(estimates="guessed")
    with pytest.raises(DpflError, match="gamma is raw"):
        AliSteps(gamma="guessed")


def test_the_whole_budget_is_used_up_by_the_last_round() -> None:
    policy, left, taus = AliSteps(whole_budget=True, gamma=0.0, mu=1.0), 157, []
    for round in range(50):
        tau = policy.next(StepContext(FACTS, 157, left, 1, {}, round))
        taus.append(tau)
        left -= tau
        if not left:
            break
    assert sum(taus) == 157
    assert max(taus) - min(taus) <= 1
    assert policy.next(StepContext(FACTS, 500, 500, 1, {}, 0)) == 10
    assert AliSteps(gamma=0.0, mu=1.0).next(StepContext(FACTS, 500, 500, 1, {}, 0)) < 10


def test_public_values_count_alike_and_raw_ones_by_weight() -> None:
    """Gamma as in the authors' code, |sum p_i (F_i(w_i) - F_i(w))|, and mu, from whoever is
    asked.
    """
    seen = quadratic(0, 1, 0.3)[0]
    asked = {
        7: {
            "losses": np.array(9.0),
            "last_losses": np.array(-0.4),
            "gradients": np.array(1.0),
            "distance": np.array(0.5),
        }
    }
    asked |= {
        8: {
            "losses": np.array(9.0),
            "last_losses": np.array(-0.2),
            "gradients": np.array(3.0),
            "distance": np.array(0.5),
        }
    }
    memory = AliSteps(gamma="public", mu="public").learn(replace(seen, public=asked), {})
    assert float(memory["gamma"]) == pytest.approx(0.3)
    assert float(memory["mu"]) == pytest.approx(4.0)
    assert AliSteps(gamma="public").asks_public
    assert not AliSteps(gamma="public").asks_raw
    assert AliSteps(gamma="raw").asks_raw
    assert AliSteps().next(now({})) == 1


def test_a_paid_slope_is_over_the_way_that_a_client_went() -> None:
    seen = quadratic(0, 1, 0.3)[0]
    raw = {
        client: {"slope": np.array(seen.step_facts.batches[client] * 2.0)}
        for client in seen.updates
    }
    memory = AliSteps(mu="paid").learn(replace(seen, raw=raw), {})
    p = shares([seen.step_facts.weights[client] for client in seen.updates])
    wanted = sum(
        share * 2.0 / float(update.norm())
        for share, update in zip(p, seen.updates.values(), strict=True)
    )
    assert float(memory["mu"]) == pytest.approx(wanted)
    assert (
        AliSteps(mu="paid").paid_slopes,
        AliSteps(mu="paid").total(7),
        AliSteps().paid_slopes,
    ) == (
        1,
        707,
        0,
    )
    negative = {client: {"slope": np.array(-5.0)} for client in seen.updates}
    assert float(AliSteps(mu="paid").learn(replace(seen, raw=negative), {})["mu"]) == 0.0


def test_mu_of_the_authors_code_is_the_last_step_over_the_way_to_the_new_aggregate() -> None:
    seen, steps = quadratic(0, 1, 0.3)[0], (0.5, 1.0, 2.0)
    raw = {client: {"last_step": np.array(step)} for client, step in enumerate(steps)}
    p = np.array(FACTS.weights) / sum(FACTS.weights)
    models = np.stack(
        [(seen.vector + seen.updates[client]).double().numpy() for client in range(3)]
    )
    apart = np.linalg.norm(models - p @ models, axis=1)
    memory = AliSteps(mu="steps").learn(replace(seen, raw=raw), {})
    assert float(memory["mu"]) == pytest.approx(float(p @ (np.array(steps) / apart)), rel=1e-4)
    assert AliSteps(mu="steps").asks_raw


def test_the_batch_of_the_authors_code_is_cut_to_a_whole_number() -> None:
    """At 2.9 images the printed formula has 2 steps, and at 2 the code's has 1; of fewer than one
    image it makes one.
    """
    memory = {"mu": torch.tensor(0.4, dtype=torch.float64)}
    few, less = (
        StepContext(replace(FACTS, batches=(batch,)), 500, 400, 2, memory) for batch in (2.9, 0.4)
    )
    uncut, cut, one = (
        ali_bounds.tau_star(AliInputs(0.4, 1.0, 10.0, 1.1, D, batch, 100.0, 0.5), "code")
        for batch in (2.9, 2, 1)
    )
    assert (round(uncut), round(cut)) == (2, 1)
    assert (AliSteps("printed").next(few), AliSteps("code").next(few)) == (2, 1)
    assert AliSteps("code").next(less) == round(one)


def test_als_asks_its_own_bound_where_it_is_defined_and_says_how_often() -> None:
    """phi = omega (1 - beta eta / 2) - sigma^2 d / lambda^2, by hand; omega of 1 is far too little
    for 2,000 parameters.
    """
    rounds, least = quadratic(0, 4, 0.3), 1.1**2 * D
    memory = learnt(AlsSteps(), rounds)
    assert memory["bounds"].tolist() == [0, 3], "the first round has nothing to compare with"
    assert (
        AlsSteps()
        .notes(memory)[0]
        .startswith(
            "the paper's bound (13) was defined after 0 of 3 rounds; after the others that of"
        )
    )
    far = AlsSteps(omega=2 * least, lam=0.9)
    memory = learnt(far, rounds)
    rho, beta, xi = memory["estimates"].tolist()
    phi = 2 * least * (1 - beta * 0.5 / 2) - least / 0.9**2
    assert float(memory["phi"]) == pytest.approx(phi)
    assert memory["bounds"].tolist() == [3, 0]
    gaps = {}
    for tau in range(1, 5):
        A = xi + 2 * math.sqrt(D) * 1.1 / 30.0
        h = A / beta * ((0.5 * beta + 1) ** tau - 1) - 0.5 * A * tau
        room = 0.5 * phi - rho * h / (tau * 0.9**2)
        gaps[tau] = 1 / (min(50 * tau, 500) * room) + math.sqrt(3) / 3 if room > 0 else math.inf
    assert far.next(now(memory)) == min(gaps, key=lambda tau: (gaps[tau], tau)) > 1
    assert AlsSteps().notes({}) == AliSteps().notes({}) == ()
    with pytest.raises(DpflError, match="omega"):
        AlsSteps(omega=0.0)


def test_a_policy_asks_clients_for_no_raw_values_that_it_does_not_use() -> None:
    """The paper's mu is asked for after the round, at the new model; that of its code is of the
    last step.
    """
    assert AliSteps(mu="raw").asks_raw
    assert AliSteps(mu="raw").raw_values == AliSteps().raw_values == AlsSteps().raw_values == ()
    assert (
        AliSteps(mu="steps").raw_values
        == AliSteps(mu="raw", gamma="raw").raw_values
        == ("last step",)
    )
    assert AlsSteps(estimates="raw").raw_values == ("differences",)


def test_raw_estimates_of_als_weigh_clients_by_their_size() -> None:
    """By hand: rho and beta are slopes, xi is how far clients' gradients are from their weighted
    mean.
    """
    seen, rng, p = (
        quadratic(0, 1, 0.3)[0],
        np.random.default_rng(1),
        np.array(FACTS.weights) / sum(FACTS.weights),
    )
    assert len(set(FACTS.weights)) > 1
    gradients, losses, rises, runs = (
        rng.standard_normal((3, D)),
        (0.2, -0.3, 0.4),
        (1.0, 2.0, 4.0),
        (0.5, 0.25, 2.0),
    )
    raw = {
        client: {
            "losses": np.array(losses[client]),
            "gradients": np.array(rises[client]),
            "distance": np.array(runs[client]),
        }
        | {"gradient": gradients[client]}
        for client in range(3)
    }
    found = AlsSteps(estimates="raw").learn(replace(seen, raw=raw), {})["estimates"].tolist()
    rho = p[0] * 0.2 / 0.5 + p[1] * 0.3 / 0.25 + p[2] * 0.4 / 2.0
    beta = p[0] * 1.0 / 0.5 + p[1] * 2.0 / 0.25 + p[2] * 4.0 / 2.0
    mean = p[0] * gradients[0] + p[1] * gradients[1] + p[2] * gradients[2]
    xi = sum(p[client] * np.sqrt(((gradients[client] - mean) ** 2).sum()) for client in range(3))
    assert found == pytest.approx([rho, beta, xi], rel=1e-6)
