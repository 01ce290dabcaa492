"""The model of one machine and the buffers beside it, which its tasks use one after another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from dpfl.client.context import ClientContext
from dpfl.client.descent.objectives import Generator
from dpfl.client.module_randomness import drawing_from
from dpfl.gradients.clipped import ClippedGradients
from dpfl.models import FlatModel
from dpfl.privacy import Release
from dpfl.privacy.mechanisms.clips.clip import Groups


class Workspace:
    """The model, the room for an update, and the clipped gradients of each grouping of layers.

    Attributes:
        context: What the clients of the machine share.
        model: The model; each task loads its weights first.
        update: Room for one update, which is valid until the next task.
    """

    def __init__(self, context: ClientContext) -> None:
        self.context = context
        shape = tuple(context.data.x.shape[1:])
        self.model = FlatModel(
            context.model.build(shape, context.task.outputs, seed=0), context.task
        )
        self.update = torch.empty_like(self.model.vector)
        self._gradients: dict[Groups, ClippedGradients] = {}

    def gradients(self, release: Release) -> ClippedGradients:
        """Finds the clipped gradients of the model's trained layers.

        Args:
            release: Its clip says which layers are clipped together.

        Returns:
            The clipped gradients, made once for each grouping.
        """
        layout = self.model.layout
        names = [
            name
            for name, offset in zip(layout.names, layout.offsets, strict=True)
            if offset < layout.trainable
        ]
        groups = release.clip.groups(names)
        if groups not in self._gradients:
            self._gradients[groups] = ClippedGradients(
                self.model, groups, arithmetic=self.context.arithmetic
            )
        return self._gradients[groups]

    @contextmanager
    def training(self, vector: Tensor, generator: Generator) -> Iterator[None]:
        """Loads weights, and lets the module train with random numbers of its own.

        Args:
            vector: The weights.
            generator: Random generators of the released value, by purpose.

        Yields:
            Nothing; the module is in training mode, and draws from its own numbers in the block.
        """
        self.model.load(vector)
        self.model.module.train()
        with drawing_from(generator("module")):
            yield

    @property
    def arithmetic(self) -> str:
        """How the units of private steps were computed so far, in words for the statement."""
        return next(
            (gradients.path for gradients in self._gradients.values() if gradients.path), ""
        )
