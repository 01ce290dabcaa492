"""What clients answer beside the rounds, and what becomes of it."""

from collections.abc import Callable

import numpy as np
import pytest

from dpfl.algorithms import fedavg_dp
from dpfl.client.task import ClientReply, RoundRequest
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.privacy.queries.mean import MeanQuery
from dpfl.server.aggregation.private_answers import PrivateAnswers
from dpfl.server.aggregation.round_sum import AnswerSum, add_integers
from dpfl.server.requests import RequestBuilder
from tests.server.rounds import coordinator

QUERY, DECLARED = MeanQuery(2.0), [10, 20, 30, 40]


def answers(
    answer: Callable[[int], ClientReply], asked: list[RoundRequest] | None = None
) -> tuple[PrivateAnswers, list[str]]:
    """A run whose clients reply like this, and the lines about those that do not count."""
    run, complaints = coordinator(fedavg_dp(noise_multiplier=1.0)), list[str]()
    requests = RequestBuilder(run.algorithm, run.budget, run.federation, run.state)

    def ask(request: RoundRequest) -> list[ClientReply]:
        if asked is not None:
            asked.append(request)
        return [answer(task.client) for task in request.tasks]

    return PrivateAnswers(requests, ask, add_integers, complaints), complaints


def mean_of(client: int) -> ClientReply:
    return ClientReply(client, raw={"answer": np.full(2, float(client))})


def test_a_mean_weighs_clients_by_their_declared_sizes_and_knows_its_noise() -> None:
    private, complaints = answers(mean_of)
    answer = private.mean(QUERY, (1, 3), DECLARED, 2, "before round 1")
    assert answer is not None
    assert answer.mean.tolist() == pytest.approx([(20 * 1 + 40 * 3) / 60] * 2)
    assert answer.units == 60
    assert answer.noise == pytest.approx(QUERY.stddev(2) * 2**0.5 / 60)
    assert complaints == []


def test_a_client_that_refuses_costs_its_answer_and_is_named() -> None:
    private, complaints = answers(
        lambda client: mean_of(client) if client else ClientReply(client, refusal="no room")
    )
    assert list(private.of_clients(QUERY, (0, 2), "before round 1")) == [2]
    assert complaints == ["before round 1, client 0: no room"]


def test_where_nobody_answers_there_is_no_mean() -> None:
    private, complaints = answers(lambda client: ClientReply(client, failure="gone"))
    assert private.mean(QUERY, (0, 1), DECLARED, 2, "at the end") is None
    assert len(complaints) == 2


def test_a_secure_sum_of_too_few_clients_is_not_even_asked_for() -> None:
    asked: list[RoundRequest] = []
    private, _ = answers(mean_of, asked)
    sums = AnswerSum(QUERY, NoiseShares(3), 2, DECLARED)
    assert private.summed_mean(sums, (0, 1), 0, "before round 1") is None
    assert asked == []


def test_numbers_of_another_kind_are_left_out_of_a_secure_sum() -> None:
    sums, rng = AnswerSum(QUERY, NoiseShares(3), 2, DECLARED), np.random.default_rng(0)

    def numbers(client: int) -> ClientReply:
        own = sums.integer_sum.numbers(np.zeros(2), rng)
        return ClientReply(client, numbers=own if client else own[:1])

    private, complaints = answers(numbers)
    answer = private.summed_mean(sums, range(4), 0, "before round 1")
    assert answer is not None
    assert answer.units == 20 + 30 + 40
    assert complaints == []
    too_few = private.summed_mean(sums, range(3), 0, "before round 1")
    assert too_few is None
    assert complaints == ["before round 1: 2 clients are left of 3, so nothing was opened"]
