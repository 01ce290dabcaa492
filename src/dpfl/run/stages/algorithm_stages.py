"""The stages from the algorithm that somebody asks for to the algorithm that runs.

`resolve` goes through all of them. The server's proposal and the audit of an experiment go through
the same ones with less knowledge: the proposal has no sizes, the audit no model.

1. `with_unit_and_queries`: whom the noise protects, and what clients are asked once.
2. `algorithm_for_run`: for the model's layout, the rounds, and secure sums.
3. `with_planned_noise` and `with_planned_rate` (`planning/planner.py`).
4. `with_noise_kind`: floating-point or secure noise.
"""

from __future__ import annotations

from dpfl.algorithms import Algorithm
from dpfl.data import Federation
from dpfl.models import Layout
from dpfl.planning.accountant_choice import accountant_of
from dpfl.planning.paid_queries import PrivateMetric, with_queries
from dpfl.privacy import Budget
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.run.options import Aggregation, Privacy
from dpfl.secagg.group import check_sizes


def with_unit(algorithm: Algorithm, unit: str | None) -> Algorithm:
    """Adapts an algorithm to a unit.

    Args:
        algorithm: The algorithm as its system composes it.
        unit: "sample", "person", or None for the algorithm's own unit.

    Returns:
        The algorithm whose noise protects that unit.

    Raises:
        DpflError: The algorithm cannot protect that unit.
    """
    return algorithm if unit is None else algorithm.for_unit(unit)


def with_unit_and_queries(
    algorithm: Algorithm,
    federation: Federation,
    budget: Budget,
    privacy: Privacy,
    metric: PrivateMetric | None,
    over_nodes: bool,
) -> Algorithm:
    """Adapts an algorithm to its unit, and adds all that the clients are asked once.

    Args:
        algorithm: The algorithm as its system composes it.
        federation: The federation with its samples as they were brought.
        budget: The budget, of which a query may take a share.
        privacy: The unit and the accountant.
        metric: The noisy metric that clients are asked for at the end, if any.
        over_nodes: Whether the clients are nodes on other machines.

    Returns:
        The algorithm with its unit and its queries.

    Raises:
        DpflError: The unit does not suit the algorithm, or a query the data.
    """
    return with_queries(
        with_unit(algorithm, privacy.unit),
        federation,
        metric,
        budget,
        privacy.accountant,
        over_nodes,
    )


def algorithm_for_run(
    algorithm: Algorithm,
    layout: Layout | None,
    rounds: int | None,
    clients: int,
    aggregation: Aggregation,
) -> Algorithm:
    """Adapts an algorithm to a model, a number of rounds and secure sums.

    Args:
        algorithm: The algorithm with its unit and its queries.
        layout: The layout of the model, or None where no model is known.
        rounds: The rounds of the budget, or None.
        clients: How many clients there are.
        aggregation: How the server gets the sum of a round.

    Returns:
        The algorithm, whose noise may still have to be planned.

    Raises:
        DpflError: A schedule needs rounds, or the sum would not be secure.
    """
    for_model = algorithm if layout is None else algorithm.for_model(layout)
    for_rounds = for_model.for_rounds(rounds, clients)
    if aggregation.kind == "plain":
        return for_rounds
    survivors = clients if aggregation.survivors is None else aggregation.survivors
    colluders = aggregation.colluders or 0
    check_sizes(clients, survivors, colluders)
    return for_rounds.with_secure_sums(NoiseShares(survivors, colluders))


def wants_secure_noise(algorithm: Algorithm, privacy: Privacy) -> bool:
    """Says whether the options ask for secure noise.

    Args:
        algorithm: The algorithm.
        privacy: The entropy and the kind of noise.

    Returns:
        Whether they do.
    """
    return privacy.noise_for(algorithm.unit) == "secure"


def with_noise_kind(algorithm: Algorithm, privacy: Privacy) -> Algorithm:
    """Gives an algorithm secure noise where the options ask for it.

    Args:
        algorithm: The algorithm with planned noise.
        privacy: The entropy and the kind of noise.

    Returns:
        The algorithm with its final noise.

    Raises:
        DpflError: Some of the noise has no secure form.
    """
    return algorithm.with_secure_noise() if wants_secure_noise(algorithm, privacy) else algorithm


def accountant_for(algorithm: Algorithm, clients: int, name: str | None) -> str:
    """Returns the name of the accountant that proves an algorithm's epsilon.

    Args:
        algorithm: The algorithm with planned noise.
        clients: How many clients there are.
        name: The accountant that was asked for, or None.

    Returns:
        The name; "none" for an algorithm without noise.

    Raises:
        DpflError: The accountant is unknown, or proves nothing.
    """
    if algorithm.release is None:
        return "none"
    return accountant_of(algorithm.release, clients, name).name
