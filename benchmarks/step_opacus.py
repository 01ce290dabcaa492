"""A step of Opacus: hooks that write out every sample's gradient, or ghost clipping.

In PyTorch's default memory format only: Opacus 1.6.0 takes a channels-last input of a convolution
for a contiguous one, and gives wrong gradients without an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from opacus import GradSampleModule
from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import (
    GradSampleModuleFastGradientClipping,
)
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn

from benchmarks.common import repeat, save_result
from benchmarks.step_common import CLIP, NOISE, RATE, batch_of, flat, module_of


class Private:
    """A module, an optimizer and a loss as `PrivacyEngine.make_private` puts them together, with a
    given expected batch.
    """

    def __init__(
        self, module: nn.Module, mode: str, rate: float, clip: float, noise: float, batch_size: int
    ) -> None:
        self.module = module
        inner = torch.optim.SGD(module.parameters(), lr=rate)
        loss = nn.CrossEntropyLoss()
        if mode == "hooks":
            self.model: nn.Module = GradSampleModule(module)
            self.optimizer = DPOptimizer(
                inner, noise_multiplier=noise, max_grad_norm=clip, expected_batch_size=batch_size
            )
            self.loss: Any = loss
        else:
            self.model = GradSampleModuleFastGradientClipping(
                module, max_grad_norm=clip, use_ghost_clipping=True
            )
            self.optimizer = DPOptimizerFastGradientClipping(
                inner, noise_multiplier=noise, max_grad_norm=clip, expected_batch_size=batch_size
            )
            self.loss = DPLossFastGradientClipping(self.model, self.optimizer, loss)

    def step(self, x: Tensor, y: Tensor) -> None:
        """Makes one private step."""
        self.optimizer.zero_grad()
        self.loss(self.model(x), y).backward()
        self.optimizer.step()


def step(model: str, batch: int, seconds: float, mode: str) -> Iterator[dict[str, Any]]:
    """Yields a check, then repetitions of private steps."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, y = batch_of(model, batch)
    once = Private(module_of(model), mode, 1.0, CLIP, 0.0, batch)
    before = flat(once.module)
    once.step(x, y)
    yield {"results": {"clipped step": save_result(before - flat(once.module))}}

    parts = Private(module_of(model), mode, RATE, CLIP, NOISE, batch)
    initial = {name: value.clone() for name, value in parts.module.state_dict().items()}

    def steps(count: int) -> None:
        parts.module.load_state_dict(initial)
        for _ in range(count):
            parts.step(x, y)

    yield from repeat(steps, seconds)
