"""Measures a private step of each task against cross-entropy of the same model.

python -m benchmarks.tasks
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor, nn

from dpfl import tasks
from dpfl.gradients.clipped import ClippedGradients
from dpfl.models import FlatModel
from dpfl.models.architectures import build_cnn

BATCH, WIDTH, HIDDEN, PLACES, TOKENS = 256, 40, 64, 12, 32
ROUNDS, STEPS = 25, 5


class Words(nn.Module):
    """A small model of tokens, with scores for each place or for the whole row."""

    def __init__(self, places: bool) -> None:
        super().__init__()
        self.embedding, self.head, self.places = (
            nn.Embedding(TOKENS, 16),
            nn.Linear(16, TOKENS),
            places,
        )

    def forward(self, x: Tensor) -> Tensor:
        """Returns the scores."""
        vectors = self.embedding(x)
        return self.head(vectors if self.places else vectors.mean(1))


def mlp(outputs: int) -> nn.Module:
    """Returns a model with one hidden layer."""
    return nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, outputs))


def step(
    module: nn.Module, x: Tensor, y: Tensor, task: tasks.Task | None = None
) -> Callable[[], object]:
    """Returns a call that computes one clipped sum."""
    gradients = ClippedGradients(FlatModel(module, task) if task else FlatModel(module))
    return lambda: gradients(x, y, lambda norms: 1 / norms.clamp_min(1.0))


def times(steps: list[Callable[[], object]]) -> list[list[float]]:
    """Returns the processor seconds of each step in several rounds, in turn."""
    durations: list[list[float]] = [[] for _ in steps]
    for _ in range(ROUNDS):
        for one, seconds in zip(steps, durations, strict=True):
            start = time.process_time()
            for _ in range(STEPS):
                one()
            seconds.append((time.process_time() - start) / STEPS)
    return durations


def quickest(steps: list[Callable[[], object]]) -> list[float]:
    """Returns the least time of each step."""
    return [min(seconds) for seconds in times(steps)]


def main() -> None:
    """Measures the tasks and prints a line for each."""
    torch.set_num_threads(1)
    x = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(0))
    cases: list[tuple[tasks.Task, Tensor]] = [
        (tasks.Binary(), torch.arange(BATCH) % 2),
        (tasks.Binary((1.0, 3.0)), torch.arange(BATCH) % 2),
        (tasks.MultiClass(2, (1.0, 3.0)), torch.arange(BATCH) % 2),
        (tasks.MultiLabel(2), (torch.arange(2 * BATCH) % 2).view(BATCH, 2)),
        (tasks.Ordinal(3), torch.arange(BATCH) % 3),
        (tasks.Regression(), torch.linspace(-1, 1, BATCH)),
        (tasks.Regression("huber"), torch.linspace(-9, 9, BATCH)),
        (tasks.Counts(), torch.arange(BATCH) % 7),
    ]
    for task, labels in cases:
        least = max(task.outputs, 2)
        plain = step(mlp(least), x, torch.arange(BATCH) % least, tasks.MultiClass(least))
        own, other = quickest([step(mlp(task.outputs), x, task.labels(labels), task), plain])
        print(f"{task!s:60} {1e3 * own:7.3f} ms  {own / other:5.2f} x cross-entropy")
    for name, (module, shape) in _models().items():
        for most in (1, 5, 20):
            _persons(name, module, shape, most)
    words = torch.arange(BATCH * PLACES).view(BATCH, PLACES) % TOKENS
    pair = (
        step(Words(True), words, words.roll(1, 1), tasks.NextToken(TOKENS)),
        _flat_tokens(words),
    )
    own, other = quickest(list(pair))
    print(
        f"{tasks.NextToken(TOKENS)!s:60} {1e3 * own:7.3f} ms  {own / other:5.2f} x cross-entropy "
        "at every place"
    )


def _models() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    """Returns models with the shape of their batch: the small one above, and three larger ones."""
    return {
        f"mlp {WIDTH}-{HIDDEN}-2": (mlp(2), (BATCH, WIDTH)),
        "mlp 784-128-10": (
            nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)),
            (256, 784),
        ),
        "cnn": (build_cnn((1, 28, 28), 10, "tanh"), (64, 1, 28, 28)),
        "linear 20-2": (nn.Linear(20, 2), (1000, 20)),
    }


def _persons(name: str, module: nn.Module, shape: tuple[int, ...], most: int) -> None:
    """Compares rows of persons, who have 1 to `most` each, with the same rows as single units."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    sizes = torch.randint(1, most + 1, shape[:1], generator=torch.Generator().manual_seed(1))
    whose, y = torch.repeat_interleave(sizes)[: len(x)], torch.arange(len(x)) % 2
    gradients = ClippedGradients(FlatModel(module))
    own, other = times(
        [lambda: gradients(x, y, lambda norms: 1 / norms.clamp_min(1.0), whose), step(module, x, y)]
    )
    ratio = median(a / b for a, b in zip(own, other, strict=True))
    line = f"{name}, {len(x)} rows, persons of 1 to {most}"
    print(f"{line:60} {1e3 * median(own):7.3f} ms  {ratio:5.2f} x cross-entropy of the rows")


def _flat_tokens(words: Tensor) -> Callable[[], object]:
    """Returns a step of the same model with cross-entropy over (samples, classes, places)."""

    class ClassesFirst(Words):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).transpose(1, 2)

    gradients = ClippedGradients(FlatModel(ClassesFirst(True)))
    y = words.roll(1, 1)
    return lambda: gradients(words, y, lambda norms: 1 / norms.clamp_min(1.0))


if __name__ == "__main__":
    main()
