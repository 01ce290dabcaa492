"""Trains for one task: from the model that arrived to the value that the client sends.

    load the model                                     x = x_0
    take the task's local steps                        x <- x - eta g, noisy where steps are private
    clip the update                                    d = clip(x - x_0)
    add the noise of an update, or the client's share  d + N(0, sigma^2)

A client's part of a secure sum is computed in the same order, and ends as whole numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from dpfl.client.descent.drift import Drift
from dpfl.client.descent.local_training import clipped_batch, plain_steps, private_steps
from dpfl.client.descent.objectives import Generator
from dpfl.client.noise_placement import NoisePlacement
from dpfl.client.task import LAST_STEP, ClientTask, rounding_sensitivity
from dpfl.client.workspace import Workspace
from dpfl.gradients.clip_factors import NonFinite
from dpfl.privacy import Release
from dpfl.privacy.mechanisms.clips.clip import Clip
from dpfl.privacy.mechanisms.clips.vector_clipping import clip_vector


@dataclass
class ClientTraining:
    """One task's training, in the workspace of its machine.

    Attributes:
        workspace: The model and its buffers.
        task: What is asked.
        vector: The model that the task starts from.
        generator: Random generators of the released value, by purpose.
        correction: What is added to the gradients; for an objective that needs it, the client's
            last model.
        last_step: The model before the last private step and that step's batch, where raw values
            of it are asked for.
    """

    workspace: Workspace
    task: ClientTask
    vector: Tensor
    generator: Generator
    correction: Tensor | None = None
    last_step: tuple[Tensor, np.ndarray] | None = field(default=None, init=False)

    def update(self) -> tuple[Tensor, bool]:
        """Trains, and returns what the client sends.

        Returns:
            The clipped update with its noise, if the client adds any, and whether the clip left it
            as it was.

        Raises:
            NonFinite: The steps left all bounds, and no noise covers the whole update.
        """
        with self.workspace.training(self.vector, self.generator):
            try:
                self._take_steps()
            except NonFinite:
                if not self.task.placement.covers_update:
                    raise
                self.workspace.model.load(self.vector)
        return self._release_update()

    def sum_numbers(self, release: Release) -> np.ndarray:
        """Computes the client's part of a secure sum, with its share of the noise.

        The part is the clipped sum of one batch, or a clipped update. Where clients are drawn, each
        draws for itself: one that is not drawn sends its noise alone, and nobody can tell. Where
        answers are timed, it trains as well.

        Args:
            release: The release that the clients share the noise of.

        Returns:
            Whole numbers, which nobody sees by themselves.
        """
        task, terms = self.task, self.task.secure_sum
        assert terms is not None
        if task.placement is NoisePlacement.EVERY_STEP:
            data = self.workspace.context.data.training(task.client)
            with self.workspace.training(self.vector, self.generator):
                gradients = self.workspace.gradients(release)
                part = release.into_sum(clipped_batch(gradients, data, release, self.generator))
        else:
            chance = release.sampling.expected_size(terms.clients) / terms.clients
            takes_part = self.generator("drawn").random() < chance
            if takes_part:
                part = release.into_sum(*self.update())
            else:
                if self.workspace.context.timed:
                    self.update()
                part = release.into_sum(torch.zeros(self.workspace.model.layout.size))
        # In float32 two sums could be rounded apart.
        weighted_numbers = part.double().numpy() * terms.weight
        integer_sum = release.integer_sum(terms.bound, terms.clients)
        return integer_sum.numbers(weighted_numbers, self.generator("share of the noise"))

    @property
    def _correction(self) -> Tensor | None:
        """Finds what is added to every gradient."""
        return None if self.task.local.objective.needs_last else self.correction

    def _take_steps(self) -> None:
        task, model = self.task, self.workspace.model
        data = self.workspace.context.data.training(task.client)
        drift = Drift(self.vector[: model.layout.trainable], task.local.prox, self._correction)
        if task.samples:
            private_steps(
                self.workspace.gradients(task.samples),
                data,
                task.steps,
                task.local,
                task.samples,
                self.generator,
                drift,
                self._remember if task.raw and LAST_STEP in task.raw_values else None,
            )
        else:
            last = self.correction if task.local.objective.needs_last else None
            plain_steps(model, data.as_rows, task.steps, task.local, self.generator, drift, last)

    def _remember(self, batch: np.ndarray) -> None:
        self.last_step = self.workspace.model.read(), batch

    def _release_update(self) -> tuple[Tensor, bool]:
        """Returns the clipped update with its noise, or with this client's share of the noise of
        the sum.

        Where the noise covers the whole update and the steps left all bounds, the update is 0. The
        server must not learn that they did.
        """
        task, model = self.task, self.workspace.model
        if task.placement.covers_update:
            difference = torch.sub(model.vector, self.vector, out=self.workspace.update)
            if not torch.isfinite(difference).all():
                model.load(self.vector)
        release = task.update_release
        update, inside = self._clipped_update(release.clip)
        if release.is_update:
            excess = rounding_sensitivity(task, self.vector, self._correction)
            rng = self.generator("upload noise")
            # The server must not learn whether it was clipped.
            weight = release.weight_covering(excess)
            return release.add_noise(update, rng, largest_weight=weight), True
        if release.shared_by:
            share = 1 / release.shared_by
            update = release.add_noise(update, self.generator("client noise"), share=share)
        return update, inside

    def _clipped_update(self, clip: Clip) -> tuple[Tensor, bool]:
        """Computes the clipped difference, or the difference to the clipped model."""
        model, room = self.workspace.model, self.workspace.update
        names, ends = model.layout.names, (*model.layout.offsets, model.layout.size)
        if clip.bounds_model:
            clipped_update, inside = clip_vector(model.vector, clip, names, ends, out=room)
            return clipped_update.sub_(self.vector), inside
        update = torch.sub(model.vector, self.vector, out=room)
        if clip.bounds_nothing:
            return update, True
        return clip_vector(update, clip, names, ends, out=update)
