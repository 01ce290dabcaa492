"""A private step of each task against cross-entropy of the same model, in one run: python -m benchmarks.tasks"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from dpfl import tasks
from dpfl.gradients.clipped import ClippedGradients
from dpfl.models import FlatModel

BATCH, WIDTH, HIDDEN, PLACES, TOKENS = 256, 40, 64, 12, 32
ROUNDS, STEPS = 25, 5


class Words(nn.Module):
    def __init__(self, places: bool) -> None:
        super().__init__()
        self.embedding, self.head, self.places = nn.Embedding(TOKENS, 16), nn.Linear(16, TOKENS), places

    def forward(self, x: Tensor) -> Tensor:
        seen = self.embedding(x)
        return self.head(seen if self.places else seen.mean(1))


def mlp(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, outputs))


def step(module: nn.Module, task: tasks.Task, x: Tensor, y: Tensor) -> Callable[[], object]:
    gradients = ClippedGradients(FlatModel(module, task))
    return lambda: gradients(x, y, lambda norms: 1 / norms.clamp_min(1.0))


def quickest(steps: list[Callable[[], object]]) -> list[float]:
    """Seconds of the processor a step, the least of several rounds in turn: what else the machine does hardly counts."""
    found = [float("inf")] * len(steps)
    for _ in range(ROUNDS):
        for number, one in enumerate(steps):
            start = time.process_time()
            for _ in range(STEPS):
                one()
            found[number] = min(found[number], (time.process_time() - start) / STEPS)
    return found


def main() -> None:
    torch.set_num_threads(1)
    x = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(0))
    given: list[tuple[tasks.Task, Tensor]] = [
        (tasks.Binary(), torch.arange(BATCH) % 2),
        (tasks.Binary((1.0, 3.0)), torch.arange(BATCH) % 2),
        (tasks.MultiClass(2, (1.0, 3.0)), torch.arange(BATCH) % 2),
        (tasks.MultiLabel(2), (torch.arange(2 * BATCH) % 2).view(BATCH, 2)),
        (tasks.Ordinal(3), torch.arange(BATCH) % 3),
        (tasks.Regression(), torch.linspace(-1, 1, BATCH)),
        (tasks.Regression("huber"), torch.linspace(-9, 9, BATCH)),
        (tasks.Counts(), torch.arange(BATCH) % 7),
    ]
    for task, labels in given:
        least = max(task.outputs, 2)
        plain = step(mlp(least), tasks.MultiClass(least), x, torch.arange(BATCH) % least)
        own, other = quickest([step(mlp(task.outputs), task, x, task.labels(labels)), plain])
        print(f"{task!s:60} {1e3 * own:7.3f} ms  {own / other:5.2f} x cross-entropy")
    for most in (1, 5, 20):
        _persons(x, most)
    words = torch.arange(BATCH * PLACES).view(BATCH, PLACES) % TOKENS
    pair = (step(Words(True), tasks.NextToken(TOKENS), words, words.roll(1, 1)), _flat_tokens(words))
    own, other = quickest(list(pair))
    print(f"{tasks.NextToken(TOKENS)!s:60} {1e3 * own:7.3f} ms  {own / other:5.2f} x cross-entropy at every place")


def _persons(x: Tensor, most: int) -> None:
    """Rows of persons who have 1 to `most` of them, against the same rows each by itself."""
    sizes = torch.randint(1, most + 1, (BATCH,), generator=torch.Generator().manual_seed(1))
    whose, y = torch.repeat_interleave(sizes)[:BATCH], torch.arange(BATCH) % 2
    gradients = ClippedGradients(FlatModel(mlp(2), tasks.MultiClass(2)))
    plain = step(mlp(2), tasks.MultiClass(2), x, y)
    own, other = quickest([lambda: gradients(x, y, lambda norms: 1 / norms.clamp_min(1.0), whose), plain])
    print(f"{f'persons of 1 to {most} rows':60} {1e3 * own:7.3f} ms  {own / other:5.2f} x cross-entropy of the rows")


def _flat_tokens(words: Tensor) -> Callable[[], object]:
    """The same model by torch's own cross-entropy over (samples, classes, places)."""

    class Transposed(Words):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).transpose(1, 2)

    gradients = ClippedGradients(FlatModel(Transposed(True)))
    y = words.roll(1, 1)
    return lambda: gradients(words, y, lambda norms: 1 / norms.clamp_min(1.0))


if __name__ == "__main__":
    main()
