"""Row 3 against the peers as a user would first write them: by the guide of Opacus, and by Flower's
example with Opacus.
"""

from __future__ import annotations

from benchmarks.harness import Contender
from benchmarks.report import Line, at_least
from benchmarks.whole_run import TRIAL, compare_runs

GOALS = {
    "Opacus as in its guide": at_least(4.0),
    "Flower + Opacus as in its example": at_least(10.0),
}


def contenders(rounds: int) -> list[Contender]:
    """Returns dpfl, and the peers as their documentation shows them."""
    options = {"rounds": rounds}
    threads = [{"threads": 1}, {"threads": 2}]
    return [
        Contender("dpfl", "benchmarks.run_dpfl:sample_level", options),
        Contender("dpfl, 2 workers", "benchmarks.run_dpfl:sample_level", {**options, "workers": 2}),
        Contender(
            "Opacus as in its guide",
            "benchmarks.run_documented:loop",
            options,
            threads,
            trial=TRIAL,
        ),
        Contender(
            "Flower + Opacus as in its example",
            "benchmarks.run_flower:simulation",
            {**options, "mode": "documented"},
        ),
    ]


def run(bench) -> list[Line]:
    """Measures row 3 against the peers as documented."""
    return compare_runs(bench, contenders, GOALS)[2]
