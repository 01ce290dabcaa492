"""Differentially private federated learning that says truthfully what it cost in privacy."""

from dpfl import algorithms, data, models, privacy
from dpfl.errors import DpflError
from dpfl.planning.planner import afford
from dpfl.planning.tradeoff import plan
from dpfl.privacy import Budget, PrivacyStatement
from dpfl.run.train import Result, train

__version__ = "0.1.0"

__all__ = [
    "Budget",
    "DpflError",
    "PrivacyStatement",
    "Result",
    "afford",
    "algorithms",
    "data",
    "models",
    "plan",
    "privacy",
    "train",
]
