"""Sampling, clipping, noise, accounting, the ledger and the statement.

Of the rest of dpfl this package imports only small helpers (errors, the codec of parts, old names),
so a reviewer can read it alone.
"""

from typing import TYPE_CHECKING

from dpfl.deprecation import deprecated_names
from dpfl.privacy.accounting.accountant import ACCOUNTANTS, Accountant, accountant
from dpfl.privacy.accounting.budget import Budget
from dpfl.privacy.accounting.calibration import affordable, noise_for
from dpfl.privacy.ledger.ledger import BudgetRefusal, Ledger, Limit
from dpfl.privacy.mechanisms.clips.adaptive_clip import PublicMedian, Quantile
from dpfl.privacy.mechanisms.clips.clip import Flat, NoClip, PerLayer
from dpfl.privacy.mechanisms.noises.noise import Gaussian
from dpfl.privacy.mechanisms.randomness import Keyed, Randomness, SystemEntropy
from dpfl.privacy.mechanisms.release import Release
from dpfl.privacy.mechanisms.sampling import All, FixedCohort, FixedSize, Poisson, PoissonSize
from dpfl.privacy.statement import PrivacyStatement

__all__ = [
    "ACCOUNTANTS",
    "Accountant",
    "All",
    "Budget",
    "BudgetRefusal",
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
    "Release",
    "SystemEntropy",
    "accountant",
    "affordable",
    "noise_for",
]

if not TYPE_CHECKING:
    __getattr__ = deprecated_names(__name__, {"Refused": "BudgetRefusal"})
