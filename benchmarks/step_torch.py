"""A step of dpfl, and a plain step of PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.common import repeat, save_result
from benchmarks.step_common import CLIP, NOISE, RATE, batch_of, flat, memory_format_of, module_of
from dpfl.client.dataset import ClientDataset
from dpfl.client.descent.local_training import private_steps
from dpfl.client.descent.optimisers import SGD
from dpfl.client.task import LocalTraining
from dpfl.gradients.clipped import ClippedGradients
from dpfl.models import FlatModel
from dpfl.privacy import All, Flat, Gaussian, Keyed, Release


def private(
    model: str, batch: int, seconds: float, steps_each: int | None = None
) -> Iterator[dict[str, Any]]:
    """Yields a check, then repetitions of private steps on all samples of a client.

    Each step has a new keyed generator for its noise.
    """
    torch.set_num_threads(1)
    x, y = batch_of(model, batch)
    flat_model = FlatModel(module_of(model))
    gradients = ClippedGradients(flat_model)
    initial, data = flat_model.read(), ClientDataset(x, y, torch.arange(batch), batch)
    randomness = Keyed(0)

    def steps(
        count: int, clip: float = CLIP, noise: float | None = NOISE, rate: float = RATE
    ) -> None:
        flat_model.load(initial)
        release = Release(All(), Flat(clip), Gaussian(noise) if noise else None)
        private_steps(
            gradients, data, count, LocalTraining(SGD(rate)), release,
            lambda purpose: randomness.generator(purpose),
        )  # fmt: skip

    def change(**settings: Any) -> str:
        steps(1, rate=1.0, noise=None, **settings)
        return save_result(initial - flat_model.read())

    yield {"results": {"clipped step": change(), "plain step": change(clip=1e6)}}
    yield from repeat(steps, seconds, steps_each)


def plain(
    model: str, batch: int, seconds: float, memory_format: str, fused: bool
) -> Iterator[dict[str, Any]]:
    """Yields a check, then repetitions of steps without privacy."""
    torch.set_num_threads(1)
    x, y = batch_of(model, batch)
    module = module_of(model)
    if x.dim() == 4 and model != "mlp":
        module, x = (one.to(memory_format=memory_format_of(memory_format)) for one in (module, x))
    initial = {name: value.clone() for name, value in module.state_dict().items()}

    def steps(count: int, rate: float = RATE) -> None:
        module.load_state_dict(initial)
        optimizer = torch.optim.SGD(module.parameters(), lr=rate, fused=fused)
        for _ in range(count):
            optimizer.zero_grad()
            F.cross_entropy(module(x), y).backward()
            optimizer.step()

    before = flat(module)
    steps(1, rate=1.0)
    yield {"results": {"plain step": save_result(before - flat(module))}}
    yield from repeat(steps, seconds)
