"""Rows 3 and 6: a whole private run over ten clients, against Opacus in a loop and against Flower's
simulation.
"""

from __future__ import annotations

from benchmarks.harness import Contender, Measured
from benchmarks.report import Line, at_least, peer_over_ours, unavailable

WORK = "10 clients, tau 3, cnn, DP-SGD"
ROUNDS = 50
MODES = ("hooks", "ghost")
FLOWER = [{"mode": mode} for mode in MODES]
TRIAL = {"rounds": 6}


def contenders(rounds: int) -> list[Contender]:
    options = {"rounds": rounds}
    loops = [{"mode": mode, "threads": threads} for mode in MODES for threads in (1, 2)]
    return [
        Contender("dpfl", "benchmarks.run_dpfl:sample_level", options),
        Contender("dpfl, 2 workers", "benchmarks.run_dpfl:sample_level", {**options, "workers": 2}),
        Contender("Opacus loop", "benchmarks.run_opacus:loop", options, loops, trial=TRIAL),
        Contender(
            "Flower + Opacus", "benchmarks.run_flower:simulation", options, FLOWER, trial=TRIAL
        ),
    ]


GOALS = {"Opacus loop": at_least(4.0), "Flower + Opacus": at_least(10.0)}


def run(bench) -> list[Line]:
    work, found, lines = measured(bench, contenders, GOALS)
    return lines + two_workers(6, work, found["dpfl"], found["dpfl, 2 workers"])


def measured(bench, contenders, goals) -> tuple[str, dict[str, Measured], list[Line]]:
    """The contenders side by side, and a line for each peer that has a goal, against one worker and
    against two.
    """
    rounds = 8 if bench.quick else ROUNDS
    work = f"{WORK}, {rounds} rounds"
    bench.say(work)
    found = bench.compare(contenders(rounds))
    _same_run(found, 0.2 if bench.quick else 0.05, bench.say)
    bench.keep(work, found)
    ours = (found["dpfl"], found["dpfl, 2 workers"])
    return (
        work,
        found,
        [
            line
            for name, goal in goals.items()
            for mine in ours
            for line in _against(work, mine, found[name], goal)
        ],
    )


def _against(work: str, ours: Measured, peer: Measured, goal) -> list[Line]:
    if ours.failed or peer.failed:
        return [unavailable(3, work, f"{peer.name} / {ours.name}", ours.failed or peer.failed)]
    whole = peer_over_ours(3, f"{work}: whole", ours, peer, goal)
    rounds = peer_over_ours(3, f"{work}: a round", ours, peer, goal, of="round")
    return [whole, rounds]


def two_workers(row: int, work: str, one: Measured, two: Measured) -> list[Line]:
    """The rounds, which is what workers can make faster, and the whole run, in which they have to
    be started.
    """
    if one.failed or two.failed:
        return [unavailable(row, work, "1 worker / 2 workers", one.failed or two.failed)]
    return [
        Line.ratio(
            row, f"{work}: a round", "1 worker / 2 workers", one, two, at_least(1.7), of="round"
        ),
        Line.ratio(row, f"{work}: whole", "1 worker / 2 workers", one, two, at_least(1.7)),
    ]


def _same_run(found: dict[str, Measured], tolerance: float, say) -> None:
    """As many steps with the same noise, to about the same accuracy (a mean over repetitions, since
    noise differs).
    """
    ours = found["dpfl"]
    if ours.failed:
        return
    for other in found.values():
        if other.failed:
            continue
        for what in ("steps", "noise"):
            if other.repetitions[0][what] != ours.repetitions[0][what]:
                other.failed = (
                    f"its {what} are {other.repetitions[0][what]}, not {ours.repetitions[0][what]}"
                )
        apart = abs(sum(other.values("accuracy")) - sum(ours.values("accuracy"))) / len(
            ours.repetitions
        )
        if apart > tolerance:
            other.failed = f"its accuracy is {apart:.2f} away from ours"
        if other.failed:
            say(f"  {other.name}: {other.failed}")
