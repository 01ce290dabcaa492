"""The model that a run proposes: built from the owner's own code, and measured step by step.

`PolicyChecker.check_model` holds each measure against the policy before it asks for the next one,
so that no weights exist of a model that is refused by its shape.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch

from dpfl import models
from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.import_path import is_path
from dpfl.models import FlatModel, feature_map, refuse_batch_statistics
from dpfl.models.build import build_module
from dpfl.models.catalog import Model
from dpfl.models.columns import on_columns
from dpfl.models.descriptions import Buildable
from dpfl.privacy.units import protects_client
from dpfl.protocol.proposal import Proposal

UNUSABLE_MODEL = (
    DpflError,
    TypeError,
    ValueError,
    RuntimeError,
    MemoryError,
    OverflowError,
    NotImplementedError,
)
"""What building a model raises where the model or its options do not fit the data."""


@dataclass(frozen=True)
class ProposedModel:
    """The model of a run and what it takes. Every method may raise `UNUSABLE_MODEL`.

    Attributes:
        model: The model, by its name in the catalogue or in the policy.
        proposal: The run.
        data: The node's data, as a federation of one client.
    """

    model: Buildable
    proposal: Proposal
    data: Federation

    @classmethod
    def of(cls, proposal: Proposal, data: Federation) -> ProposedModel:
        """Chooses the model of a run.

        Args:
            proposal: The run, which the policy allows.
            data: The node's data, as a federation of one client.

        Returns:
            The model, of which nothing is built yet.
        """
        return cls(on_columns(_named_model(proposal), data.train.features), proposal, data)

    @property
    def has_features(self) -> bool:
        """Whether it is trained on fixed features in place of the samples."""
        return feature_map(self.model, self.data.shape) is not None

    @property
    def from_catalogue(self) -> bool:
        """Whether its code is part of dpfl, and not the owner's own."""
        return not is_path(self.proposal.model)

    @property
    def numbers_per_row(self) -> int:
        """How many numbers of one row it reads."""
        return math.prod(self._input_shape)

    def count_parameters(self) -> int:
        """Counts the numbers of its parameters, without their values.

        Returns:
            The count.
        """
        shape, outputs = self._input_shape, self.proposal.learning.outputs
        with torch.device("meta"):
            module = self.model.build(shape, outputs, 0)
            return sum(parameter.numel() for parameter in module.parameters())

    def vector_size(self) -> int:
        """Builds the model and measures its vector.

        Returns:
            How many numbers a message with the model has.

        Raises:
            DpflError: It has statistics of a batch, which one sample could not be clipped out of.
        """
        learning = self.proposal.learning
        flat = FlatModel(build_module(self.model, self._input_shape, learning.outputs, 0), learning)
        if not protects_client(self.proposal.unit):
            refuse_batch_statistics(flat.module)
        return flat.layout.size

    @cached_property
    def _input_shape(self) -> tuple[int, ...]:
        """The shape of what the model reads: of a sample, or of its features."""
        features = feature_map(self.model, self.data.shape)
        if features is None:
            return self.data.shape
        return tuple(features(self.data.train.x[:1]).shape[1:])


def _named_model(proposal: Proposal) -> Buildable:
    if is_path(proposal.model):
        return Model(proposal.model, proposal.options)
    return models.from_name(proposal.model, **dict(proposal.options))
