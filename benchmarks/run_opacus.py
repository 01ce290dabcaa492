"""DP-SGD at ten clients with Opacus, in one process and one efficient loop.

One module is wrapped once and takes the place of every client in turn. Batches are drawn by index,
which is quicker than the data loader of Opacus. All clients have the same epsilon, so the
accountant runs once.
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
    """Trains on the samples of any client, from a given vector."""

    def __init__(
        self, federation: Federation, mode: str, noise: float, tau: int, sampling_rate: float
    ) -> None:
        self.federation, self.tau, self.sampling_rate, self.steps = (
            federation,
            tau,
            sampling_rate,
            0,
        )
        batch_size = round(sampling_rate * federation.sizes[0])
        self.module = common.initial()
        self._private = Private(self.module, mode, common.RATE, common.CLIP, noise, batch_size)

    def train(self, number: int, vector: Tensor) -> Tensor:
        """Trains on a client's samples and returns the new vector."""
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
    """Yields a check, then repetitions of a run in one loop."""
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
        total_epsilon = epsilon(rounds * common.TAU, q)
        yield clock.read() | {
            "steps": client.steps,
            "noise": common.NOISE,
            "accuracy": right,
            "epsilon": total_epsilon,
        }


def average(client: Client, vector: Tensor) -> Tensor:
    """Trains one round, and returns the mean of the models, which the module then holds."""
    numbers = range(len(client.federation.clients))
    mean = torch.stack([client.train(number, vector) for number in numbers]).mean(0)
    vector_to_parameters(mean, client.module.parameters())
    return mean


def epsilon(steps: int, sampling_rate: float) -> float:
    """Returns epsilon after a number of steps, by the accountant of Opacus."""
    accountant = PRVAccountant()
    accountant.history = [(common.NOISE, sampling_rate, steps)]
    return float(accountant.get_epsilon(common.DELTA))
