"""Private queries beside the rounds: clients answer them before the first round and after the last.

The engine that runs the rounds also sends the queries. Each client pays for its answer. The server
takes the mean of the answers, or under secure aggregation the sum of them only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from dpfl.client.task import ClientReply, RoundRequest
from dpfl.privacy.queries.mean import MeanAnswer
from dpfl.privacy.queries.query import PrivateQuery
from dpfl.server.aggregation.round_sum import AddIntegers, AnswerSum, open_sum
from dpfl.server.requests import RequestBuilder

Ask = Callable[[RoundRequest], list[ClientReply]]
"""Sends a request to its clients, and returns their replies, as an engine does."""


class PrivateAnswers:
    """Asks private queries, and combines what clients answer.

    Args:
        requests: Builds the requests.
        ask: Sends a request to its clients.
        add: Adds up what clients send to a secure sum.
        complaints: Lines about replies that could not be used; more are added.
    """

    def __init__(
        self, requests: RequestBuilder, ask: Ask, add: AddIntegers, complaints: list[str]
    ) -> None:
        self._requests, self._ask, self._add = requests, ask, add
        self._complaints = complaints

    def of_clients(
        self, query: PrivateQuery, clients: Sequence[int], when: str
    ) -> dict[int, np.ndarray]:
        """Asks clients whose answers the server sees one by one.

        Args:
            query: The query.
            clients: Who is asked.
            when: When, in words.

        Returns:
            The answers of those that answered.
        """
        replies = self._replies(query, clients, when)
        return {reply.client: reply.raw["answer"] for reply in replies if reply.raw is not None}

    def mean(
        self,
        query: PrivateQuery,
        clients: Sequence[int],
        declared_sizes: Sequence[int],
        width: int,
        when: str,
    ) -> MeanAnswer | None:
        """Returns the mean over the units of all clients that answered.

        Args:
            query: The query, answered by each client with a mean.
            clients: Who is asked.
            declared_sizes: How many units each client of the run declared.
            width: How many numbers an answer has.
            when: When, in words.

        Returns:
            The mean; None where nobody answered.
        """
        answers = {
            client: torch.from_numpy(answer)
            for client, answer in self.of_clients(query, clients, when).items()
        }
        if not answers:
            return None
        return MeanAnswer.from_clients(answers, declared_sizes, query.stddev(width))

    def summed_mean(
        self, sums: AnswerSum, clients: Sequence[int], round: int, when: str
    ) -> MeanAnswer | None:
        """Returns the mean from a secure sum of the answers.

        Args:
            sums: The sum, with its query and who shares its noise.
            clients: Who is asked.
            round: The number of the round, which names the sum.
            when: When, in words.

        Returns:
            The mean; None where too few answered, or the sum was not opened.
        """
        if len(clients) < sums.shares.survivors:
            return None
        replies = self._replies(sums.query, clients, when, sums)
        if not replies:
            return None
        numbers = {
            reply.client: reply.numbers
            for reply in replies
            if reply.numbers is not None and not sums.numbers_fault(reply)
        }
        return open_sum(
            numbers,
            sums.shares,
            lambda: sums.mean(numbers, self._add, round),
            when,
            self._complaints,
        )

    def _replies(
        self,
        query: PrivateQuery,
        clients: Sequence[int],
        when: str,
        sums: AnswerSum | None = None,
    ) -> list[ClientReply]:
        """Asks a query and records failures. A client that refuses or fails is lost for this query
        only.
        """
        terms = sums.terms if sums else None
        replies = self._ask(self._requests.query(clients, query, terms))
        self._complaints += [
            f"{when}, client {reply.client}: {reply.refusal or reply.failure}"
            for reply in replies
            if reply.refusal or reply.failure
        ]
        return replies
