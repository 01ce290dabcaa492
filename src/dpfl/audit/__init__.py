"""Games that try to refute a guarantee: on any algorithm, release or mechanism, and together as an audit."""

from dpfl.audit.audit import audit
from dpfl.audit.bounds import Guesses, Measured, one_run_epsilon
from dpfl.audit.distinguish import distinguish
from dpfl.audit.leaks import Leak, leaks
from dpfl.audit.one_release import one_release
from dpfl.audit.report import Finding, Report

__all__ = [
    "Finding",
    "Guesses",
    "Leak",
    "Measured",
    "Report",
    "audit",
    "distinguish",
    "leaks",
    "one_release",
    "one_run_epsilon",
]
