"""Plans the noise and the learning rate of a run from its budget.

Three numbers determine each other: epsilon, the noise multiplier, and the number of releases. An
accountant computes epsilon from the other two, and epsilon falls as noise grows. So there are two
inverse questions, and both are answered by search with the accountant that later guards the run:

- *How much noise does this run need?* The run's releases are known before it starts: rounds times
  steps, plus one for each query that clients answer besides training, plus what their ledgers
  already hold. `with_planned_noise` finds the least noise with which all of them stay within
  epsilon, so that a run makes all of its rounds and wastes nothing.
- *How many steps does this noise allow?* `afford` answers it, and the other two questions as well.

The learning rate can follow from the noise. Gradients pull the model in one direction, noise moves
it at random. Over a run of T steps the noise moves the model by about

    eta z C sqrt(d K T) / (q n)

for learning rate eta, clip norm C, d parameters and K clients with n samples together.
`with_planned_rate` sets eta so that this distance is the algorithm's `walk`. No data is read.

    >>> dpfl.afford(epsilon=2.0, noise_multiplier=1.1).iterations
    716
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dpfl.algorithms import Algorithm
from dpfl.client.descent.optimisers import SGD
from dpfl.errors import DpflError
from dpfl.planning.accountant_choice import accountant_of
from dpfl.planning.feature_counts import RowFeatures
from dpfl.privacy import Budget, Flat, Poisson, accountant, affordable, noise_for
from dpfl.privacy.accounting.calibration import MAX_RELEASES
from dpfl.privacy.accounting.events import EventCounts, add_all
from dpfl.privacy.mechanisms.noises.noise import check_noise_multiplier


@dataclass(frozen=True)
class BudgetPlan:
    """One line of a budget: any two of epsilon, noise and iterations determine the third.

    Attributes:
        epsilon: Epsilon that the iterations cost.
        delta: Delta of the guarantee.
        sampling_rate: Probability with which each sample enters a step.
        noise_multiplier: Noise standard deviation over sensitivity.
        iterations: Number of private steps of one client.
        accountant: Name of the accountant.
        proven: Whether the accountant gives an upper bound on epsilon.
    """

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
    """Computes what is missing of epsilon, noise and iterations.

    Args:
        delta: Delta of the guarantee.
        sampling_rate: Probability with which each sample enters a step (Poisson sampling).
        epsilon: Privacy budget.
        noise_multiplier: Noise standard deviation over sensitivity.
        iterations: Number of private steps of one client.
        by: Name of the accountant.

    Returns:
        The plan. Without `iterations` it has the most that epsilon allows. Without
        `noise_multiplier` it has the least noise that the iterations need. With both, it has their
        epsilon.

    Raises:
        DpflError: Fewer than two of the three are given, or one is out of range.
    """
    sampling, accounting = Poisson(sampling_rate), accountant(by)
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
            lambda z: {sampling.event(z, 1): count}, target.epsilon, delta, accounting
        )
    event = sampling.event(noise_multiplier, 1)
    if iterations is None:
        if target.epsilon is None:
            raise DpflError("A plan needs two of --epsilon, --noise-multiplier and --iterations.")
        iterations = affordable({}, event, target.epsilon, delta, accounting)
    return BudgetPlan(
        accounting.epsilon({event: iterations}, delta),
        delta,
        sampling_rate,
        noise_multiplier,
        iterations,
        accounting.name,
        accounting.proven,
    )


def with_planned_noise(
    algorithm: Algorithm,
    budget: Budget,
    population: int,
    by: str | None,
    prior: EventCounts | None = None,
) -> Algorithm:
    """Gives an algorithm the least noise with which it makes all of its rounds within epsilon.

    Args:
        algorithm: The algorithm. It is returned as it is if its noise is already given.
        budget: The budget, with epsilon and rounds.
        population: Number of units that the release samples from.
        by: Name of the accountant; None for the tightest that is proven for the release. A
            published variant is planned by the accountant of its own claim.
        prior: Events that the ledgers hold already.

    Returns:
        The algorithm with its noise.

    Raises:
        DpflError: The budget lacks epsilon or rounds, or has too little room for any noise.
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
    is_published = algorithm.variant == "published"
    if is_published and algorithm.claim.accountant:
        accounting = accountant(algorithm.claim.accountant)
    else:
        accounting = accountant_of(release, population, by)
    queries = (
        accounting.epsilon(algorithm.query_spending, budget.delta)
        if algorithm.query_spending
        else 0.0
    )
    if queries >= budget.epsilon:
        raise DpflError(
            f"The private queries alone cost epsilon {queries:.4g}, but budget.epsilon is "
            f"{budget.epsilon:g}: raise their noise, or raise the budget."
        )

    def plan(z: float) -> EventCounts:
        noisy = algorithm.with_noise(z)
        events = noisy.stated_spending if is_published else noisy.spending
        return add_all(add_all(prior or {}, algorithm.query_spending), events(count, population))

    return algorithm.with_noise(noise_for(plan, budget.epsilon, budget.delta, accounting))


def planned_rate(
    walk: float, stddev: float, parameters: int, steps: int, largest: float = math.inf
) -> float:
    """Computes the learning rate at which noise moves the model by a distance over a run.

    The noise of T steps on d parameters moves the model by about eta s sqrt(d T).

    Args:
        walk: The distance.
        stddev: The standard deviation s of a step's noise on each parameter of the mean model.
        parameters: The number d of trained parameters.
        steps: The number T of steps.
        largest: The largest rate that the model can bear.

    Returns:
        The rate, rounded to three digits.
    """
    return float(f"{min(walk / (stddev * math.sqrt(parameters * steps)), largest):.3g}")


def with_planned_rate(
    algorithm: Algorithm,
    budget: Budget,
    sizes: Sequence[int],
    parameters: int,
    rows: RowFeatures | None = None,
) -> Algorithm:
    """Gives an algorithm the learning rate at which noise moves the model by the planned distance.

    On rows of a table, unless clip norm and walk are given, the clip norm is the norm of a usual
    gradient, the walk moves a score by little, and the learning rate is at most what a linear model
    can bear.

    Args:
        algorithm: The algorithm, with its noise. It is returned as it is if its rate is given.
        budget: The budget, with rounds.
        sizes: Declared number of samples per client.
        parameters: Number of trained parameters of the model.
        rows: Size of a table's rows; None for other samples.

    Returns:
        The algorithm with its learning rate.

    Raises:
        DpflError: The budget has no rounds.
    """
    local, release = algorithm.local, algorithm.samples
    walk, most = local.optimiser.walk, math.inf
    if walk is None or release is None:
        return algorithm
    if rows is not None and local.optimiser.by_rows:
        release = replace(release, clip=Flat(rows.clip))
        walk, most = rows.walk(parameters), rows.most
    if budget.rounds is None:
        raise DpflError(
            "A learning rate can be planned for a number of rounds; give budget.rounds, or a rate."
        )
    steps, total = algorithm.releases_in(budget.rounds), sum(sizes)
    each = (size / total / release.divisor_for(size) for size in sizes)
    stddev = release.local_stddev * math.hypot(*each)
    rate = planned_rate(walk, stddev, parameters, steps, most)
    return replace(algorithm, samples=release, local=replace(local, optimiser=SGD(rate)))
