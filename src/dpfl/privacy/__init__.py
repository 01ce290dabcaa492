"""Sampling, clipping, noise, accounting, the ledger and the statement.

Imports nothing else of the package but its error: a reviewer can read it alone.
"""

from dpfl.privacy.accountant import ACCOUNTANTS, Accountant, accountant
from dpfl.privacy.budget import Budget
from dpfl.privacy.calibrate import affordable, noise_for
from dpfl.privacy.clip import Flat, NoClip, PerLayer, PublicMedian, Quantile
from dpfl.privacy.ledger import Ledger, Limit, Refused
from dpfl.privacy.noise import Gaussian
from dpfl.privacy.randomness import Keyed, Randomness, SystemEntropy
from dpfl.privacy.release import Release
from dpfl.privacy.sampling import All, FixedCohort, FixedSize, Poisson, PoissonSize
from dpfl.privacy.statement import PrivacyStatement

__all__ = [
    "ACCOUNTANTS",
    "Accountant",
    "All",
    "Budget",
    "FixedCohort",
    "FixedSize",
    "Flat",
    "Gaussian",
    "Keyed",
    "Ledger",
    "Limit",
    "NoClip",
    "PerLayer",
    "Poisson",
    "PoissonSize",
    "PrivacyStatement",
    "PublicMedian",
    "Quantile",
    "Randomness",
    "Refused",
    "Release",
    "SystemEntropy",
    "accountant",
    "affordable",
    "noise_for",
]
