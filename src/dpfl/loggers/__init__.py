"""Callbacks for the loggers that people already use, each an extra: they write files of this
machine, and cross no network.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpfl.bad_values import require_name
from dpfl.deprecation import deprecated_names
from dpfl.lazy_import import on_demand

if TYPE_CHECKING:
    from dpfl.loggers.mlflow import MLflow
    from dpfl.loggers.tensorboard import TensorBoard
    from dpfl.run.callbacks import Callback, RunStart

__all__ = ["Callback", "MLflow", "RunStart", "TensorBoard", "from_words"]

NAMES = {"tensorboard": "TensorBoard", "mlflow": "MLflow"}
"""Of an experiment's section [log]."""


def from_words(log: Mapping[str, str]) -> list[Callback]:
    """The loggers of an experiment's section [log]: each by name, with where it writes."""
    for name in log:
        require_name("logger", name, NAMES)
    return [_load(NAMES[name])(place) for name, place in log.items()]


_HOMES = {
    "Callback": "dpfl.run.callbacks",
    "MLflow": "dpfl.loggers.mlflow",
    "RunStart": "dpfl.run.callbacks",
    "TensorBoard": "dpfl.loggers.tensorboard",
}
_NEW_NAMES = {"Started": "RunStart"}
_load, __dir__ = on_demand(__name__, _HOMES)
_load_deprecated = deprecated_names(__name__, _NEW_NAMES)


def __getattr__(name: str) -> Any:
    return _load_deprecated(name) if name in _NEW_NAMES else _load(name)
