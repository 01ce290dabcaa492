"""Measures the cost of `privacy.noise = "secure"`, for the noise alone and for whole private steps.

python -m benchmarks.secure_noise
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch

from benchmarks.step_common import CLIP, NOISE, RATE, batch_of, module_of
from dpfl.client.dataset import ClientDataset
from dpfl.client.descent.local_training import private_steps
from dpfl.client.descent.optimisers import SGD
from dpfl.client.task import LocalTraining
from dpfl.gradients.clipped import ClippedGradients
from dpfl.models import FlatModel
from dpfl.privacy import All, Flat, Gaussian, Release, SystemEntropy

RELEASE = Release(All(), Flat(CLIP), Gaussian(NOISE))
REPETITIONS = 41
STEPS = 5


def main() -> None:
    """Measures noise and private steps, and prints a line for each."""
    torch.set_num_threads(1)
    total, rng = torch.randn(159_010), SystemEntropy().generator("noise")
    _print("noise for 159,010 numbers", 1, lambda release: lambda: release.add_noise(total, rng))
    for model, batch in (("mlp", 64), ("cnn", 90)):
        _print(f"private step, {model}, batch {batch}", STEPS, _steps(model, batch))


def _steps(model: str, batch: int) -> Callable[[Release], Callable[[], object]]:
    flat = FlatModel(module_of(model))
    gradients, data = (
        ClippedGradients(flat),
        ClientDataset(*batch_of(model, batch), torch.arange(batch), batch),
    )
    generator = SystemEntropy().generator
    return lambda release: (
        lambda: private_steps(gradients, data, STEPS, LocalTraining(SGD(RATE)), release, generator)
    )


def _print(work: str, parts: int, make_call: Callable[[Release], Callable[[], object]]) -> None:
    """Measures plain and secure noise in turn, so that a busy machine slows both."""
    calls = [make_call(RELEASE), make_call(RELEASE.with_secure_noise())]
    durations: list[list[float]] = [[], []]
    for _ in range(REPETITIONS):
        for call, times in zip(calls, durations, strict=True):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
    ratio = median(secure / plain for plain, secure in zip(*durations, strict=True))
    plain, secure = (1000 * median(times) / parts for times in durations)
    print(f"{work}: plain {plain:.2f} ms, secure {secure:.2f} ms, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
