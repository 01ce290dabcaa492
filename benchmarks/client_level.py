"""Rows 4, 5 and 6: client-level privacy, against pfl (pfl-research) in one process and in two."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

from benchmarks.client_level_work import CIFAR, DIGITS, Work
from benchmarks.harness import Contender, Measured
from benchmarks.report import Line, at_least, peer_over_ours, unavailable
from benchmarks.whole_run import two_workers

ROWS = ((4, CIFAR, 2.0), (5, DIGITS, 3.0))
"""Row, work, and how many times faster than pfl in one process."""


def contenders(work: Work, rounds: int) -> list[Contender]:
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
    lines = []
    for row, work, goal in ROWS:
        rounds = 3 if bench.quick else work.rounds
        bench.say(work.title)
        found = bench.compare(contenders(work, rounds))
        _same_work(found, bench.say)
        bench.keep(work.title, found)
        lines += _against(row, work, found["dpfl"], found["pfl"], goal)
        lines += _against(row, work, found["dpfl, 2 workers"], found["pfl, 2 processes"], 1.0)
        if row == 5:
            lines += two_workers(6, work.title, found["dpfl"], found["dpfl, 2 workers"])
    return lines


def _against(row: int, work: Work, ours: Measured, peer: Measured, goal: float) -> list[Line]:
    if ours.failed or peer.failed:
        return [
            unavailable(row, work.title, f"{peer.name} / {ours.name}", ours.failed or peer.failed)
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


def _same_work(found: dict[str, Measured], say) -> None:
    """As many local steps a round, and noise of the same deviation on the sum."""
    ours = found["dpfl"]
    for other in found.values():
        if ours.failed or other.failed:
            continue
        for what in ("steps", "deviation"):
            mine, theirs = ours.repetitions[0][what], other.repetitions[0][what]
            if abs(mine - theirs) > 1e-6 * mine:
                other.failed = f"its {what} is {theirs}, not {mine}"
                say(f"  {other.name}: {other.failed}")
