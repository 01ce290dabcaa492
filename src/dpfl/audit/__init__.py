"""Games that try to refute a guarantee: on an algorithm, a release or a mechanism, or all together.

`audit.py` explains what a game, a lower bound and a verdict are.
"""

from typing import TYPE_CHECKING

from dpfl.audit.audit import audit
from dpfl.audit.bounds import GuessCounts, MeasuredEpsilon, one_run_epsilon
from dpfl.audit.leaks import Leak, leaks
from dpfl.audit.measurements.distinguish import distinguish
from dpfl.audit.measurements.one_release import one_release
from dpfl.audit.report import AuditFinding, AuditReport
from dpfl.audit.subject import AuditSettings
from dpfl.deprecation import deprecated_names

__all__ = [
    "AuditFinding",
    "AuditReport",
    "AuditSettings",
    "GuessCounts",
    "Leak",
    "MeasuredEpsilon",
    "audit",
    "distinguish",
    "leaks",
    "one_release",
    "one_run_epsilon",
]

if not TYPE_CHECKING:
    __getattr__ = deprecated_names(
        __name__,
        {
            "Finding": "AuditFinding",
            "Guesses": "GuessCounts",
            "Measured": "MeasuredEpsilon",
            "Report": "AuditReport",
        },
    )
