"""The same run with Opacus as in its guide: `PrivacyEngine.make_private` over a data loader, for
every client.

In a loop, the parts of each client are made once. In Flower, they are made in every round, as in
its example with Opacus.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch
from opacus import PrivacyEngine
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils.data import DataLoader, TensorDataset

from benchmarks import run_common as common
from benchmarks.common import Clock
from benchmarks.run_dpfl import change
from benchmarks.run_opacus import average, epsilon
from dpfl.data import Federation


class Client:
    """Trains on the samples of any client, from a given vector."""

    def __init__(
        self, federation: Federation, noise: float, tau: int, batch: int, kept: bool
    ) -> None:
        self.federation, self.tau, self.steps = federation, tau, 0
        self.module = common.initial()
        self._noise, self._batch = noise, batch
        self._parts = lru_cache(maxsize=None)(self._private) if kept else self._private

    def _private(self, number: int) -> tuple[nn.Module, Any, DataLoader[Any]]:
        rows = self.federation.clients[number]
        data = TensorDataset(self.federation.train.x[rows], self.federation.train.y[rows])
        module = common.initial()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return PrivacyEngine().make_private(
                module=module, optimizer=torch.optim.SGD(module.parameters(), lr=common.RATE),
                data_loader=DataLoader(data, batch_size=self._batch), noise_multiplier=self._noise,
                max_grad_norm=common.CLIP, poisson_sampling=self._noise > 0,
            )  # fmt: skip

    def train(self, number: int, vector: Tensor) -> Tensor:
        """Trains on a client's samples and returns the new vector."""
        module, optimizer, loader = self._parts(number)
        vector_to_parameters(vector.clone(), module.parameters())
        batches = iter(loader)
        for _ in range(self.tau):
            try:
                x, y = next(batches)
            except StopIteration:
                batches = iter(loader)
                x, y = next(batches)
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(x), y).backward()
            optimizer.step()
            self.steps += 1
        trained = parameters_to_vector(module.parameters()).detach()
        vector_to_parameters(trained, self.module.parameters())
        return trained


def loop(rounds: int, threads: int) -> Iterator[dict[str, Any]]:
    """Yields a check, then repetitions of a run in one loop."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    federation = common.federation()
    once = Client(common.small(), noise=0.0, tau=common.TAU, batch=16, kept=True)
    average(once, parameters_to_vector(once.module.parameters()).detach())
    yield {"results": {"round without noise": change(common.initial(), once.module)}}
    while True:
        clock = Clock()
        client = Client(federation, common.NOISE, common.TAU, common.BATCH, kept=True)
        vector = parameters_to_vector(client.module.parameters()).detach()
        for _ in range(rounds):
            vector = average(client, vector)
            clock.tick()
        right = common.accuracy(client.module, federation.test.x, federation.test.y)
        total_epsilon = epsilon(rounds * common.TAU, common.sampling_rate(federation.sizes[0]))
        yield clock.read() | {
            "steps": client.steps,
            "noise": common.NOISE,
            "accuracy": right,
            "epsilon": total_epsilon,
        }
