"""Rows 3 and 6: a whole private run over ten clients, against Opacus in a loop and against Flower's
simulation.
"""

from __future__ import annotations

from benchmarks.harness import Contender, Measurement
from benchmarks.report import Line, at_least, peer_over_ours, unavailable

WORK = "10 clients, tau 3, cnn, DP-SGD"
ROUNDS = 50
MODES = ("hooks", "ghost")
FLOWER = [{"mode": mode} for mode in MODES]
TRIAL = {"rounds": 6}


def contenders(rounds: int) -> list[Contender]:
    """Returns dpfl with one worker and with two, and the peers."""
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
    """Measures rows 3 and 6."""
    work, measurements, lines = compare_runs(bench, contenders, GOALS)
    return lines + two_workers(6, work, measurements["dpfl"], measurements["dpfl, 2 workers"])


def compare_runs(bench, contenders, goals) -> tuple[str, dict[str, Measurement], list[Line]]:
    """Measures the contenders, and returns a line for each peer with a goal, against one worker and
    two.
    """
    rounds = 8 if bench.quick else ROUNDS
    work = f"{WORK}, {rounds} rounds"
    bench.say(work)
    measurements = bench.compare(contenders(rounds))
    _same_run(measurements, 0.2 if bench.quick else 0.05, bench.say)
    bench.keep(work, measurements)
    ours = (measurements["dpfl"], measurements["dpfl, 2 workers"])
    return (
        work,
        measurements,
        [
            line
            for name, goal in goals.items()
            for mine in ours
            for line in _against(work, mine, measurements[name], goal)
        ],
    )


def _against(work: str, ours: Measurement, peer: Measurement, goal) -> list[Line]:
    if ours.failure or peer.failure:
        return [unavailable(3, work, f"{peer.name} / {ours.name}", ours.failure or peer.failure)]
    whole = peer_over_ours(3, f"{work}: whole", ours, peer, goal)
    rounds = peer_over_ours(3, f"{work}: a round", ours, peer, goal, of="round")
    return [whole, rounds]


def two_workers(row: int, work: str, one: Measurement, two: Measurement) -> list[Line]:
    """Returns lines for the rounds, which workers make faster, and for the run with their start."""
    if one.failure or two.failure:
        return [unavailable(row, work, "1 worker / 2 workers", one.failure or two.failure)]
    return [
        Line.ratio(
            row, f"{work}: a round", "1 worker / 2 workers", one, two, at_least(1.7), of="round"
        ),
        Line.ratio(row, f"{work}: whole", "1 worker / 2 workers", one, two, at_least(1.7)),
    ]


def _same_run(measurements: dict[str, Measurement], tolerance: float, say) -> None:
    """Checks that all make the same steps with the same noise, to about the same mean accuracy."""
    ours = measurements["dpfl"]
    if ours.failure:
        return
    for other in measurements.values():
        if other.failure:
            continue
        for what in ("steps", "noise"):
            if other.repetitions[0][what] != ours.repetitions[0][what]:
                other.failure = (
                    f"its {what} are {other.repetitions[0][what]}, not {ours.repetitions[0][what]}"
                )
        apart = abs(sum(other.values("accuracy")) - sum(ours.values("accuracy"))) / len(
            ours.repetitions
        )
        if apart > tolerance:
            other.failure = f"its accuracy is {apart:.2f} away from ours"
        if other.failure:
            say(f"  {other.name}: {other.failure}")
