"""Differentially private federated learning that states truthfully what it costs in privacy."""

from typing import TYPE_CHECKING

from dpfl.errors import DpflError
from dpfl.lazy_import import on_demand

if TYPE_CHECKING:
    from dpfl import algorithms, audit, certificate, data, loggers, models, privacy, tasks
    from dpfl.planning.paid_queries import PrivateMetric
    from dpfl.planning.plan import plan
    from dpfl.planning.planner import afford
    from dpfl.privacy import Budget, PrivacyStatement
    from dpfl.run.options import Aggregation, Evaluation, Execution, Privacy
    from dpfl.run.result import Result
    from dpfl.run.train import train
    from dpfl.views.comparison import compare, runs

__version__ = "0.2.0"

__all__ = [
    "Aggregation",
    "Budget",
    "DpflError",
    "Evaluation",
    "Execution",
    "Privacy",
    "PrivacyStatement",
    "PrivateMetric",
    "Result",
    "afford",
    "algorithms",
    "audit",
    "certificate",
    "compare",
    "data",
    "loggers",
    "models",
    "plan",
    "privacy",
    "runs",
    "tasks",
    "train",
]

_ROOMS = ("algorithms", "audit", "certificate", "data", "loggers", "models", "privacy", "tasks")
_HOMES = {
    "Aggregation": "dpfl.run.options",
    "Budget": "dpfl.privacy",
    "Evaluation": "dpfl.run.options",
    "Execution": "dpfl.run.options",
    "Privacy": "dpfl.run.options",
    "PrivacyStatement": "dpfl.privacy",
    "PrivateMetric": "dpfl.planning.paid_queries",
    "Result": "dpfl.run.result",
    "afford": "dpfl.planning.planner",
    "compare": "dpfl.views.comparison",
    "plan": "dpfl.planning.plan",
    "runs": "dpfl.views.comparison",
    "train": "dpfl.run.train",
}
if not TYPE_CHECKING:
    __getattr__, __dir__ = on_demand(__name__, {room: f"dpfl.{room}" for room in _ROOMS} | _HOMES)
