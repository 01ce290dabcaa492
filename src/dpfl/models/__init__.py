"""Models: their descriptions, and a model as one flat vector.

A description (`catalog.py`) is a name and options. It builds the same module, with the same
weights, everywhere. `FlatModel` (`flat.py`) makes a module's parameters views into one vector.
"""

from typing import TYPE_CHECKING

from dpfl.deprecation import deprecated_names
from dpfl.lazy_import import on_demand

if TYPE_CHECKING:
    from dpfl.models.catalog import (
        Model,
        alexnet,
        as_model,
        cnn,
        cnn_wide,
        feature_map,
        from_module,
        from_name,
        gru,
        linear,
        mlp,
        mobilenet_v2,
        resnet18,
        scattering_linear,
        transformer,
    )
    from dpfl.models.check import refuse_batch_statistics
    from dpfl.models.descriptions import Buildable
    from dpfl.models.evaluation import evaluate
    from dpfl.models.flat import FlatModel, Layout
    from dpfl.models.logits import hugging_face

__all__ = [
    "Buildable",
    "FlatModel",
    "Layout",
    "Model",
    "alexnet",
    "as_model",
    "cnn",
    "cnn_wide",
    "evaluate",
    "feature_map",
    "from_module",
    "from_name",
    "gru",
    "hugging_face",
    "linear",
    "mlp",
    "mobilenet_v2",
    "refuse_batch_statistics",
    "resnet18",
    "scattering_linear",
    "transformer",
]

_ELSEWHERE = {
    "Buildable": "dpfl.models.descriptions",
    "FlatModel": "dpfl.models.flat",
    "Layout": "dpfl.models.flat",
    "evaluate": "dpfl.models.evaluation",
    "hugging_face": "dpfl.models.logits",
    "refuse_batch_statistics": "dpfl.models.check",
}
if not TYPE_CHECKING:
    _load, __dir__ = on_demand(__name__, dict.fromkeys(__all__, "dpfl.models.catalog") | _ELSEWHERE)
    __getattr__ = deprecated_names(__name__, {"described": "as_model"}, _load)
