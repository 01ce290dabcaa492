"""`dpfl.plan`: a plan for a budget, from what is publicly known of clients, model and machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from dpfl.deprecation import regroup_options
from dpfl.errors import DpflError
from dpfl.models import Buildable, as_model
from dpfl.planning.noise_choices import PlanningQuestion
from dpfl.planning.speed import ClientWork
from dpfl.planning.tradeoff import Tradeoff, tradeoff
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.secagg.group import check_sizes


@dataclass(frozen=True)
class ClientWorkload:
    """The work of a client, and how much of it a round has room for.

    A model for samples of a shape gives the number of parameters. Where seconds are limited and no
    speed is given, the speed of that model is measured here for about a second, on random numbers.

    Attributes:
        model: The model: its name, a part of `dpfl.models`, or a module.
        shape: Shape of a sample, channels first.
        classes: Number of classes.
        parameters: Number of trained parameters, instead of a model.
        samples_per_round: Most samples that a client may compute in a round.
        seconds_per_round: Most seconds that a client may compute in a round.
        samples_per_second: Speed of a client.
    """

    model: Buildable | nn.Module | str | None = None
    shape: Sequence[int] = ()
    classes: int = 10
    parameters: int | None = None
    samples_per_round: float | None = None
    seconds_per_round: float | None = None
    samples_per_second: float | None = None

    def __post_init__(self) -> None:
        if self.model is not None and self.parameters is not None:
            raise DpflError("Give either a model or its parameters.")


@dataclass(frozen=True)
class PlanSearch:
    """The cells of a plan's table. Without values it has the usual ones.

    Attributes:
        rates: Sampling rates.
        taus: Local steps per round.
    """

    rates: Sequence[float] = ()
    taus: Sequence[int] = ()


def plan(
    epsilon: float,
    rounds: int,
    *,
    delta: float = 1e-5,
    sizes: Sequence[int] = (),
    workload: ClientWorkload | None = None,
    accountant: str = "pld",
    search: PlanSearch | None = None,
    secure_sums: NoiseShares | None = None,
    **old_options: Any,
) -> Tradeoff:
    """Plans how to spend epsilon over a number of rounds. No data is read.

    Args:
        epsilon: Privacy budget.
        rounds: Number of rounds.
        delta: Delta of the guarantee.
        sizes: Declared number of samples per client.
        workload: The model, and what a client can compute in a round.
        accountant: Name of the accountant, which must be proven.
        search: Sampling rates and steps to compare.
        secure_sums: Clients that share the noise, if the server is to see sums only.
        **old_options: Options of version 0.1 that are now in `workload`, `search` and
            `secure_sums`. They go in version 0.3.

    Returns:
        The trade-off, with the recommended sampling rate, noise and steps.

    Raises:
        DpflError: The question makes no sense, or nothing stays within the limits.

    Example:
        >>> limit = ClientWorkload(parameters=26_010, samples_per_round=600)
        >>> dpfl.plan(2.0, 100, sizes=[6000] * 10, workload=limit).recommendation
        NoiseChoice(sampling_rate=0.1, tau=1, noise_multiplier=2.2479, iterations=100)
    """
    workload, search, secure_sums = regroup_options(
        "plan",
        old_options,
        {
            "workload": (workload, ClientWorkload, ClientWorkload.__match_args__),
            "search": (search, PlanSearch, PlanSearch.__match_args__),
            "secure_sums": (
                secure_sums,
                partial(noise_shares, len(sizes)),
                ("survivors", "colluders"),
            ),
        },
    )
    workload, search = workload or ClientWorkload(), search or PlanSearch()
    if secure_sums is not None:
        check_sizes(len(sizes), secure_sums.survivors, secure_sums.colluders)
    parameters, speed, measured_model = _measure(workload)
    question = PlanningQuestion(
        epsilon=epsilon,
        rounds=rounds,
        delta=delta,
        sizes=tuple(sizes),
        samples_per_round=workload.samples_per_round,
        parameters=parameters,
        accountant=accountant,
        seconds_per_round=workload.seconds_per_round,
        samples_per_second=speed,
        measured_model=measured_model,
        noise_shares=secure_sums,
    )
    return tradeoff(question, search.rates, search.taus)


def _measure(workload: ClientWorkload) -> tuple[int | None, float | None, str]:
    """Finds the model's parameters, the client's speed, and the model that the speed was measured
    on, if it was.
    """
    if workload.model is None:
        return workload.parameters, workload.samples_per_second, ""
    work = ClientWork(as_model(workload.model), tuple(workload.shape), workload.classes)
    if workload.seconds_per_round is None or workload.samples_per_second is not None:
        return work.parameters, workload.samples_per_second, ""
    return work.parameters, float(f"{work.samples_per_second():.3g}"), work.name


def noise_shares(
    clients: int, survivors: int | None = None, colluders: int | None = None
) -> NoiseShares | None:
    """Returns who shares the noise of a secure sum.

    Args:
        clients: Number of clients.
        survivors: Clients that must be in every sum; by default all.
        colluders: Clients that may belong to the server; by default none.

    Returns:
        The shares, or None if neither number is given: the server then sees every update.

    Raises:
        DpflError: There are no clients.
    """
    if survivors is None and colluders is None:
        return None
    if not clients:
        raise DpflError(
            "A plan for secure sums needs the clients' sizes: give --sizes, or --clients and "
            "--size."
        )
    return NoiseShares(clients if survivors is None else survivors, colluders or 0)
