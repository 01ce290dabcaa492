"""Callbacks for common loggers, each an optional extra.

They write local files and use no network.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dpfl.bad_values import require_name
from dpfl.deprecation import deprecated_names
from dpfl.lazy_import import on_demand

if TYPE_CHECKING:
    from dpfl.loggers.mlflow import MLflow
    from dpfl.loggers.tensorboard import TensorBoard
    from dpfl.run.callbacks import Callback, RunStart

__all__ = ["Callback", "MLflow", "RunStart", "TensorBoard", "from_words"]

NAMES = {"tensorboard": "TensorBoard", "mlflow": "MLflow"}
"""The class of each logger that the section `[log]` of an experiment may name."""


def from_words(log: Mapping[str, str]) -> list[Callback]:
    """Builds the loggers of an experiment.

    Args:
        log: The section `[log]`: the destination of each logger, by its name.

    Returns:
        One callback per logger.

    Raises:
        DpflError: There is no such logger, it is not installed, or it cannot write there.
    """
    for name in log:
        require_name("logger", name, NAMES)
    return [_load(NAMES[name])(place) for name, place in log.items()]


_HOMES = {
    "Callback": "dpfl.run.callbacks",
    "MLflow": "dpfl.loggers.mlflow",
    "RunStart": "dpfl.run.callbacks",
    "TensorBoard": "dpfl.loggers.tensorboard",
}
_load, __dir__ = on_demand(__name__, _HOMES)
__getattr__ = deprecated_names(__name__, {"Started": "RunStart"}, _load)
