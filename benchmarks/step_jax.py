"""A step of jax-privacy on the CPU: `clipped_grad`, its Gaussian privatizer and an SGD update in
one compiled function.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import jax
import jax.numpy as jnp
import jax_privacy
import numpy as np
import optax
from jax_privacy import noise_addition

from benchmarks.common import repeat, save_result
from benchmarks.jax_model import from_torch, to_flat
from benchmarks.step_common import CLIP, NOISE, RATE, batch_of, module_of


def step(
    model: str, batch: int, seconds: float, layout: str, microbatch: int | None
) -> Iterator[dict[str, Any]]:
    """Yields a check, then repetitions of private steps."""
    x, y = batch_of(model, batch)
    images, labels = jnp.asarray(_to_layout(x.numpy(), layout)), jnp.asarray(y.numpy())
    forward, initial = from_torch(module_of(model), layout)

    def loss(parameters: Any, x: Any, y: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(forward(parameters, x), y).mean()

    clipped_gradient = jax_privacy.clipped_grad(
        loss, l2_clip_norm=CLIP, batch_argnums=(1, 2), microbatch_size=microbatch
    )

    def optimizer(rate: Any, noise: Any) -> Any:
        privatizer = noise_addition.gaussian_privatizer(
            stddev=noise * clipped_gradient.sensitivity(), prng_key=jax.random.key(0)
        )
        return optax.chain(privatizer, optax.scale(1 / batch), optax.sgd(rate))

    @partial(jax.jit, donate_argnums=0)
    def update(parameters: Any, state: Any, x: Any, y: Any, rate: Any, noise: Any) -> Any:
        changes, state = optimizer(rate, noise).update(
            clipped_gradient(parameters, x, y), state, parameters
        )
        return optax.apply_updates(parameters, changes), state

    start = optimizer(RATE, NOISE).init(initial)

    def steps(count: int, rate: float = RATE, noise: float = NOISE) -> Any:
        parameters, state = jax.tree.map(jnp.copy, initial), start
        for _ in range(count):
            parameters, state = update(parameters, state, images, labels, rate, noise)
        return jax.block_until_ready(parameters)

    after = steps(1, rate=1.0, noise=0.0)
    yield {
        "results": {"clipped step": save_result(to_flat(initial, layout) - to_flat(after, layout))}
    }
    yield from repeat(steps, seconds)


def _to_layout(images: np.ndarray, layout: str) -> np.ndarray:
    return images.transpose(0, 2, 3, 1) if layout == "NHWC" else images
