"""What a budget buys: noise for epsilon, iterations for epsilon, epsilon for what was spent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dpfl.algorithms import Algorithm
from dpfl.client.optimisers import SGD, UncalibratedSGD
from dpfl.errors import DpflError
from dpfl.planning.feature_counts import RowFeatures
from dpfl.privacy import Budget, Flat, Poisson, accountant, affordable, noise_for
from dpfl.privacy.accounting.accountant import default_accountant, proven_accountant
from dpfl.privacy.accounting.calibration import MAX_RELEASES
from dpfl.privacy.accounting.events import EventCounts, add_all
from dpfl.privacy.mechanisms.noise import check_noise_multiplier


@dataclass(frozen=True)
class BudgetPlan:
    """One line of a budget: three of epsilon, noise and iterations determine each other."""

    epsilon: float
    delta: float
    sampling_rate: float
    noise_multiplier: float
    iterations: int
    accountant: str
    proven: bool


def afford(
    delta: float = 1e-5,
    sampling_rate: float = 0.015,
    epsilon: float | None = None,
    noise_multiplier: float | None = None,
    iterations: int | None = None,
    by: str = "pld",
) -> BudgetPlan:
    """What epsilon, noise and iterations afford: fills in what is missing of iterations, else
    noise, else epsilon.
    """
    sampling, chosen = Poisson(sampling_rate), accountant(by)
    target = Budget(epsilon=epsilon, delta=delta, rounds=1)
    if iterations is not None and not 1 <= iterations <= MAX_RELEASES:
        raise DpflError(
            f"The number of iterations must be from 1 to {MAX_RELEASES:,}, not {iterations}."
        )
    if noise_multiplier is not None:
        check_noise_multiplier(noise_multiplier)
    if noise_multiplier is None:
        if target.epsilon is None or iterations is None:
            raise DpflError(
                "Without a noise multiplier, a plan needs --epsilon and --iterations (or --rounds)."
            )
        count = iterations
        noise_multiplier = noise_for(
            lambda z: {sampling.event(z, 1): count}, target.epsilon, delta, chosen
        )
    event = sampling.event(noise_multiplier, 1)
    if iterations is None:
        if target.epsilon is None:
            raise DpflError("A plan needs two of --epsilon, --noise-multiplier and --iterations.")
        iterations = affordable({}, event, target.epsilon, delta, chosen)
    spent = chosen.epsilon({event: iterations}, delta)
    return BudgetPlan(
        spent, delta, sampling_rate, noise_multiplier, iterations, chosen.name, chosen.proven
    )


def with_planned_noise(
    algorithm: Algorithm,
    budget: Budget,
    population: int,
    by: str | None,
    spent: EventCounts | None = None,
) -> Algorithm:
    """The algorithm with the least noise that lets it make all of its rounds within epsilon, beside
    what was `spent` before.
    """
    release = algorithm.release
    if release is None or not release.uncalibrated:
        return algorithm
    if budget.epsilon is None or budget.rounds is None:
        raise DpflError(
            "Noise can be planned from budget.epsilon and budget.rounds; give both, or a "
            "noise_multiplier."
        )
    count = algorithm.releases_in(budget.rounds)
    if count > MAX_RELEASES:
        raise DpflError(
            f"Noise is planned for {MAX_RELEASES:,} releases at most, not for {count:,}; lower "
            "budget.rounds or tau."
        )
    claimed = algorithm.claim.accountant if algorithm.variant == "published" else None
    chosen = (
        accountant(claimed)
        if claimed
        else proven_accountant(by or default_accountant(release.sampling.event(1.0, population)))
    )

    if (
        algorithm.before
        and (asked := chosen.epsilon(algorithm.before, budget.delta)) >= budget.epsilon
    ):
        raise DpflError(
            f"What clients are asked beside the rounds costs epsilon {asked:.4g} by itself, and "
            f"epsilon is {budget.epsilon:g}: "
            "give it more noise."
        )

    def plan(z: float) -> EventCounts:
        noisy = algorithm.with_noise(z)
        counted = noisy.stated if algorithm.variant == "published" else noisy.spending
        return add_all(add_all(spent or {}, algorithm.before), counted(count, population))

    return algorithm.with_noise(noise_for(plan, budget.epsilon, budget.delta, chosen))


def with_planned_rate(
    algorithm: Algorithm,
    budget: Budget,
    sizes: Sequence[int],
    parameters: int,
    rows: RowFeatures | None = None,
) -> Algorithm:
    """The rate at which the noise of all steps, z C sqrt(d K T) / (q n) on the mean of K clients by
    size, is the walk; shares of the noise are less.

    On rows of a table, where nobody said otherwise, the clip is the length of a usual gradient, the
    walk one that moves a score by little, and the rate no higher than a linear model can bear.
    """
    local, release = algorithm.local, algorithm.samples
    if not isinstance(local.optimiser, UncalibratedSGD) or release is None:
        return algorithm
    walk, most = local.optimiser.walk, math.inf
    if rows is not None and local.optimiser.by_rows:
        release, walk, most = (
            replace(release, clip=Flat(rows.clip)),
            rows.walk(parameters),
            rows.most,
        )
    if budget.rounds is None:
        raise DpflError(
            "A learning rate can be planned for a number of rounds; give budget.rounds, or a rate."
        )
    steps = algorithm.releases_in(budget.rounds)
    noise = (
        release.local_stddev
        * math.sqrt(parameters * len(sizes) * steps)
        / release.sampling.expected_size(sum(sizes))
    )
    rate = float(f"{min(walk / noise, most):.3g}")
    return replace(algorithm, samples=release, local=replace(local, optimiser=SGD(rate)))
