"""Prints the table of mu in docs/systems.md: slopes of raw gradients at the models of a run, beside
estimates from released values.

    DPFL_DATA=... python scripts/mu_sizes.py [MODEL] [ROUND ...]

One run of MNIST by Dirichlet(0.05), tau = 1. A raw slope is that of the paper, sum_i p_i |grad
F_i(w_i) - grad F_i(w)| over
|w_i - w| with the new aggregate w, over up to 300 images of a client; then over one batch; then of
clipped gradients, at the level of steps and at ten times that. `paid` is the last
of these with its noise, over a batch. `released` is the estimate from released values, beside the
slope of the same mean gradient without noise, between the same two models.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

import dpfl
from dpfl.algorithms import ali_dpfl
from dpfl.data import Dirichlet, Federation
from dpfl.gradients.clipped import ClippedGradients
from dpfl.gradients.losses import plain_gradient
from dpfl.models import FlatModel
from dpfl.privacy import Flat
from dpfl.server.steps.adaptive import AliSteps
from dpfl.server.steps.estimates import shares
from dpfl.server.steps.policy import RoundObservation, StepContext

IMAGES, SEED = 300, 0
HEADS = (
    "round",
    "raw",
    "raw, one batch",
    "clipped at C",
    "clipped at 10 C",
    "paid",
    "released",
    "the same without noise",
)


@dataclass(frozen=True)
class SlopePrinter(AliSteps):
    """ALI's policy at tau = 1, which prints the size of mu in some rounds.

    The federation and the model are attributes of the class, not options: options of a policy can
    be written to a file, and these cannot.
    """

    federation: ClassVar[Federation | None] = None
    model: ClassVar[FlatModel | None] = None
    rounds: ClassVar[tuple[int, ...]] = ()
    noise: ClassVar[np.random.Generator] = np.random.default_rng(SEED)

    def next(self, context: StepContext) -> int:
        """Returns tau = 1 for every round."""
        return 1

    def learn(
        self, observation: RoundObservation, memory: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Updates the estimates, and prints them in the chosen rounds."""
        estimates = super().learn(observation, memory)
        if observation.round in self.rounds:
            sizes = (f"{value:.2f}" for value in self._sizes(observation, memory, estimates))
            print("| " + " | ".join([str(observation.round), *sizes]) + " |", flush=True)
        return estimates

    def _sizes(
        self,
        observation: RoundObservation,
        memory: Mapping[str, Tensor],
        estimates: Mapping[str, Tensor],
    ) -> list[float]:
        p, facts = (
            shares([observation.step_facts.weights[client] for client in observation.updates]),
            observation.step_facts,
        )
        models = {
            client: observation.vector + update for client, update in observation.updates.items()
        }
        new = sum(share * model for share, model in zip(p.tolist(), models.values(), strict=True))
        many = {client: self._images(client, IMAGES) for client in models}
        few = {
            client: self._images(client, max(1, int(facts.batches[client]))) for client in models
        }

        def own(level: float | None, images: Mapping[int, Tensor], start: Tensor) -> np.ndarray:
            """Returns each client's slope from the start to its own model."""
            ends = [
                (self._gradient(model, images[client], level), client)
                for client, model in models.items()
            ]
            rises = [
                float((end - self._gradient(start, images[client], level)).norm())
                for end, client in ends
            ]
            return np.array(rises) / [float((model - start).norm()) for model in models.values()]

        sizes = [
            own(None, many, new),
            own(None, few, new),
            own(facts.clip, many, new),
            own(10 * facts.clip, many, new),
        ]
        deviations = np.array(
            [2 * 10 * facts.multiplier * facts.clip / facts.batches[client] for client in models]
        )
        runs = np.array([float(update.norm()) for update in observation.updates.values()])
        noisy_slopes = (
            own(10 * facts.clip, few, observation.vector)
            + self.noise.normal(size=len(p)) * deviations / runs
        )
        there, here = memory["model"], observation.vector
        pairs = list(zip(p.tolist(), models, strict=True))
        means = [
            sum(share * self._gradient(at, many[client], facts.clip) for share, client in pairs)
            for at in (there, here)
        ]
        along = float((means[1] - means[0]).norm() / (here - there).norm())
        return [
            *(float(p @ one) for one in sizes),
            float(p @ noisy_slopes),
            float(estimates["mu"]),
            along,
        ]

    def _images(self, client: int, count: int) -> Tensor:
        assert self.federation is not None
        rows = self.federation.clients[client]
        return rows[torch.from_numpy(self.noise.permutation(len(rows))[:count])]

    def _gradient(self, vector: Tensor, rows: Tensor, level: float | None) -> Tensor:
        assert self.model is not None
        assert self.federation is not None
        self.model.load(vector)
        x, y = self.federation.train.x[rows], self.federation.train.y[rows]
        if level is None:
            return plain_gradient(self.model, x, y)[0]
        return ClippedGradients(self.model)(x, y, Flat(level).factors, None).total / len(rows)


def main(name: str = "cnn", *rounds: str) -> None:
    """Runs MNIST with a model and prints the table."""
    federation = dpfl.data.mnist().split(clients=10, how=Dirichlet(0.05, 600), seed=SEED)
    model, at = dpfl.models.from_name(name), tuple(map(int, rounds)) or (2, 10, 25)
    flat = FlatModel(model.build(federation.shape, 10, seed=0), federation.task)
    SlopePrinter.federation, SlopePrinter.model, SlopePrinter.rounds = federation, flat, at
    algorithm = replace(ali_dpfl(), steps=SlopePrinter())
    print("| " + " | ".join(HEADS) + " |\n" + "|---" * len(HEADS) + "|")
    with tempfile.TemporaryDirectory() as folder:
        budget = dpfl.Budget(epsilon=2.0, delta=1e-5, rounds=max(at) + 1)
        dpfl.train(
            model,
            federation,
            algorithm,
            budget,
            execution=dpfl.Execution(seed=SEED, out=Path(folder) / "run"),
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
