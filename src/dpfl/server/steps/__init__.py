"""Policies for the number of local steps of a round: fixed, or chosen from a convergence bound."""

from typing import TYPE_CHECKING

from dpfl.deprecation import deprecated_names

if not TYPE_CHECKING:
    __getattr__ = deprecated_names(__name__, {"Fixed": "dpfl.server.steps.policy.FixedSteps"})
