"""A model for the data of a federation: its description, the data as it takes it, first weights."""

from __future__ import annotations

from dataclasses import dataclass

from dpfl.data import Federation
from dpfl.models import Buildable, FlatModel
from dpfl.models.build import build_module
from dpfl.models.columns import on_columns
from dpfl.run.stages.features import with_features


@dataclass(frozen=True)
class ModelForData:
    """A model and a federation that fit together, for a run and for a server's proposal.

    Attributes:
        description: How the model is built, from numbers and codes where the data is a table.
        federation: The federation with every sample replaced by the model's fixed features.
        flat: The model as one vector with its layout.
    """

    description: Buildable
    federation: Federation
    flat: FlatModel


def model_for_data(model: Buildable, federation: Federation, seed: int) -> ModelForData:
    """Builds a model for the data of a federation.

    Args:
        model: The description of the model.
        federation: The federation with its samples as they were brought.
        seed: The seed of the first weights.

    Returns:
        The model and the data in the form that it takes.

    Raises:
        DpflError: The model cannot be built for samples of this shape.
    """
    description = on_columns(model, federation.train.features)
    features = with_features(description, federation)
    module = build_module(description, features.shape, features.task.outputs, seed)
    return ModelForData(description, features, FlatModel(module, features.task))
