"""Differentially private federated learning that says truthfully what it cost in privacy."""

from dpfl import algorithms, data, models, privacy
from dpfl.errors import DpflError
from dpfl.planner import plan
from dpfl.privacy import Budget, PrivacyStatement
from dpfl.train import Result, train

__version__ = "0.1.0"

__all__ = ["Budget", "DpflError", "PrivacyStatement", "Result", "algorithms", "data", "models", "plan", "privacy", "train"]
