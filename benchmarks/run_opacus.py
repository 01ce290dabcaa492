"""DP-SGD at ten clients with Opacus, in one process and one loop: what a user of Opacus writes,
without waste.

One module is wrapped once and takes every client's place in turn. Batches are drawn by index, which
is quicker than the data loader that Opacus makes. All clients have spent alike, so its accountant
is asked once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from opacus.accountants import PRVAccountant
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from benchmarks import run_common as common
from benchmarks.common import Clock
from benchmarks.run_dpfl import change
from benchmarks.step_opacus import Private
from dpfl.data import Federation


class Client:
    """Trains any client's samples, from a given vector."""

    def __init__(
        self, federation: Federation, mode: str, noise: float, tau: int, sampling_rate: float
    ) -> None:
        self.federation, self.tau, self.sampling_rate, self.steps = (
            federation,
            tau,
            sampling_rate,
            0,
        )
        expected = round(sampling_rate * federation.sizes[0])
        self.module = common.initial()
        self._private = Private(self.module, mode, common.RATE, common.CLIP, noise, expected)

    def train(self, number: int, vector: Tensor) -> Tensor:
        rows = self.federation.clients[number]
        vector_to_parameters(
            vector.clone(), self.module.parameters()
        )  # the parameters become views of what they are given
        for _ in range(self.tau):
            batch = rows[torch.rand(len(rows)) < self.sampling_rate]
            self._private.step(self.federation.train.x[batch], self.federation.train.y[batch])
            self.steps += 1
        return parameters_to_vector(self.module.parameters()).detach()


def loop(rounds: int, mode: str, threads: int) -> Iterator[dict[str, Any]]:
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    federation = common.federation()
    once = Client(common.small(), mode, noise=0.0, tau=common.TAU, sampling_rate=1.0)
    average(once, parameters_to_vector(once.module.parameters()).detach())
    yield {"results": {"round without noise": change(common.initial(), once.module)}}
    while True:
        clock = Clock()
        q = common.sampling_rate(federation.sizes[0])
        client = Client(federation, mode, common.NOISE, common.TAU, q)
        vector = parameters_to_vector(client.module.parameters()).detach()
        for _ in range(rounds):
            vector = average(client, vector)
            clock.tick()
        right = common.accuracy(client.module, federation.test.x, federation.test.y)
        spent = epsilon(rounds * common.TAU, q)
        yield clock.read() | {
            "steps": client.steps,
            "noise": common.NOISE,
            "accuracy": right,
            "epsilon": spent,
        }


def average(client: Client, vector: Tensor) -> Tensor:
    """One round: the mean of the clients' models, which the module holds afterwards."""
    numbers = range(len(client.federation.clients))
    mean = torch.stack([client.train(number, vector) for number in numbers]).mean(0)
    vector_to_parameters(mean, client.module.parameters())
    return mean


def epsilon(steps: int, sampling_rate: float) -> float:
    accountant = PRVAccountant()
    accountant.history = [(common.NOISE, sampling_rate, steps)]
    return float(accountant.get_epsilon(common.DELTA))
