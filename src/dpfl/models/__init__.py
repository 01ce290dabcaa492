"""What is trained: descriptions of models, and a model as one flat vector."""

from dpfl.models.catalog import (
    Model,
    alexnet,
    cnn,
    cnn_wide,
    feature_map,
    from_module,
    from_name,
    mlp,
    mobilenet_v2,
    resnet18,
    scattering_linear,
)
from dpfl.models.check import refuse_batch_statistics
from dpfl.models.evaluate import evaluate
from dpfl.models.flat import FlatModel, Layout

__all__ = [
    "FlatModel",
    "Layout",
    "Model",
    "alexnet",
    "cnn",
    "cnn_wide",
    "evaluate",
    "feature_map",
    "from_module",
    "from_name",
    "mlp",
    "mobilenet_v2",
    "refuse_batch_statistics",
    "resnet18",
    "scattering_linear",
]
