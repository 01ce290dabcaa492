"""Rows 4, 5 and 6: client-level privacy, against pfl (pfl-research) in one process and in two."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

from benchmarks.client_level_work import CIFAR, DIGITS, Work
from benchmarks.harness import Contender, Measurement
from benchmarks.report import Line, at_least, peer_over_ours, unavailable
from benchmarks.whole_run import two_workers

ROWS = ((4, CIFAR, 2.0), (5, DIGITS, 3.0))
"""Row, work, and the goal: how many times faster than pfl in one process."""


def contenders(work: Work, rounds: int) -> list[Contender]:
    """Returns dpfl and pfl, in one process and in two."""
    options = {"work": asdict(work), "rounds": rounds}
    threads = [{"threads": 1}, {"threads": 2}]
    formats = [{"memory_format": "contiguous"}, {"memory_format": "channels_last"}][
        : 1 if work.network == "mlp" else 2
    ]
    each = partial(
        Contender, trial={"rounds": 2}, tolerance=1e-4 if work.network == "mlp" else 1e-3
    )
    return [
        each("dpfl", "benchmarks.client_level_dpfl:run", options),
        each("dpfl, 2 workers", "benchmarks.client_level_dpfl:run", {**options, "workers": 2}),
        each(
            "pfl",
            "benchmarks.client_level_pfl:run",
            options,
            [one | other for one in threads for other in formats],
        ),
        each(
            "pfl, 2 processes",
            "benchmarks.client_level_pfl:run",
            {**options, "processes": 2},
            formats,
        ),
    ]


def run(bench) -> list[Line]:
    """Measures rows 4, 5 and 6."""
    lines = []
    for row, work, goal in ROWS:
        rounds = 3 if bench.quick else work.rounds
        bench.say(work.title)
        measurements = bench.compare(contenders(work, rounds))
        _same_work(measurements, bench.say)
        bench.keep(work.title, measurements)
        lines += _against(row, work, measurements["dpfl"], measurements["pfl"], goal)
        lines += _against(
            row, work, measurements["dpfl, 2 workers"], measurements["pfl, 2 processes"], 1.0
        )
        if row == 5:
            lines += two_workers(
                6, work.title, measurements["dpfl"], measurements["dpfl, 2 workers"]
            )
    return lines


def _against(row: int, work: Work, ours: Measurement, peer: Measurement, goal: float) -> list[Line]:
    if ours.failure or peer.failure:
        return [
            unavailable(row, work.title, f"{peer.name} / {ours.name}", ours.failure or peer.failure)
        ]
    return [
        peer_over_ours(row, f"{work.title}: a round", ours, peer, at_least(goal), of="round"),
        peer_over_ours(
            row,
            f"{work.title}: {ours.repetitions[0]['rounds']} rounds with start",
            ours,
            peer,
            at_least(goal),
        ),
    ]


def _same_work(measurements: dict[str, Measurement], say) -> None:
    """Checks that all make the same number of local steps, with the same noise on the sum."""
    ours = measurements["dpfl"]
    for other in measurements.values():
        if ours.failure or other.failure:
            continue
        for what in ("steps", "deviation"):
            mine, theirs = ours.repetitions[0][what], other.repetitions[0][what]
            if abs(mine - theirs) > 1e-6 * mine:
                other.failure = f"its {what} is {theirs}, not {mine}"
                say(f"  {other.name}: {other.failure}")
