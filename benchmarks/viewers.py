"""Measures the cost of pages: training while twenty viewers watch, a list of a thousand runs, and
the planner.

    python -m benchmarks.viewers [--viewers 20] [--rounds 40] [--pairs 5] [--runs 1000]

Training is `dpfl run` with one worker beside a server over its folder, in turn without and with
open event streams. Its time is that of its rounds, as the run records them. All other figures are
in seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpfl.run.metrics import read_rows
from dpfl.run.records.folder import METRICS, RunFolder
from dpfl.web.planner import PlanRequest, answer
from dpfl.web.run_index import RunIndex

PROGRAM = "from dpfl.cli import main; main()"


@contextmanager
def server(runs: Path) -> Iterator[str]:
    """Runs `dpfl ui` over a folder of runs, and yields its address."""
    command = [sys.executable, "-c", PROGRAM, "ui", "--runs", str(runs), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = next(line for line in iter(process.stderr.readline, "") if "http://" in line)
    try:
        yield "http://" + line.partition("http://")[2].split()[0]
    finally:
        process.terminate()
        process.wait(20)


def watch(address: str, name: str, folder: Path, end: threading.Event) -> None:
    """Reads every event to the end of a run, as a page does."""
    while not RunFolder(folder).begun() and not end.is_set():
        time.sleep(0.1)
    query = urllib.parse.urlencode({"name": name})
    while not end.is_set():
        with urllib.request.urlopen(f"{address}api/events?{query}", timeout=60) as stream:
            for line in stream:
                if end.is_set() or b'"over": true' in line:
                    break


def round_seconds(runs: Path, address: str, name: str, rounds: int, viewers: int) -> float:
    """Returns the seconds of a round after the first, with a number of viewers."""
    end = threading.Event()
    pages = [
        threading.Thread(target=watch, args=(address, name, runs / name, end), daemon=True)
        for _ in range(viewers)
    ]
    for page in pages:
        page.start()
    words = [
        "run",
        "--set",
        f"budget.rounds={rounds}",
        "--set",
        "algorithm.name=fedavg-dp",
        "--set",
        "model.name=mlp",
    ]
    command = [
        sys.executable,
        "-c",
        PROGRAM,
        *words,
        "--out",
        str(runs / name),
        "--workers",
        "1",
        "--quiet",
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end.set()
    rows = read_rows(runs / name / METRICS)
    return (rows[-1].seconds - rows[0].seconds) / (len(rows) - 1)


def list_seconds(runs: Path, count: int, of: Path) -> tuple[float, float]:
    """Returns the seconds to list some runs for the first time, and again."""
    for number in range(count):
        (runs / f"run-{number:05}").mkdir(parents=True)
        for file in ("experiment.toml", "result.json", METRICS):
            shutil.copyfile(of / file, runs / f"run-{number:05}" / file)
    index, times = RunIndex(runs), []
    for _ in range(2):
        start = time.perf_counter()
        assert len(index.lines()) == count
        times.append(time.perf_counter() - start)
    return times[0], times[1]


def plan_seconds() -> list[float]:
    """Returns the seconds of new answers, as when a slider moves."""
    answer(PlanRequest(epsilon=1.0, rounds=10))
    times = []
    for step in range(20):
        start = time.perf_counter()
        answer(PlanRequest(epsilon=round(0.5 * 1.2**step, 3), rounds=50 + 20 * step))
        times.append(time.perf_counter() - start)
    return times


def main() -> None:
    """Measures training, the list and the planner, and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, usual in {"viewers": 20, "rounds": 40, "pairs": 5, "runs": 1000}.items():
        parser.add_argument(f"--{name}", type=int, default=usual)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as scratch:
        runs = Path(scratch) / "runs"
        runs.mkdir()
        ratios = []
        with server(runs) as address:
            for pair in range(options.pairs):
                times = {}
                for viewers in (0, options.viewers) if pair % 2 else (options.viewers, 0):
                    times[viewers] = round_seconds(
                        runs, address, f"pair-{pair}-{viewers}", options.rounds, viewers
                    )
                ratios.append(times[options.viewers] / times[0])
        first, again = list_seconds(
            Path(scratch) / "many", options.runs, runs / f"pair-0-{options.viewers}"
        )
        plans = sorted(plan_seconds())
    figures = {
        "training, watched over alone": {
            "viewers": options.viewers,
            "median": statistics.median(ratios),
            "all": ratios,
        },
        "list, seconds": {"runs": options.runs, "first": first, "again": again},
        "plan, seconds": {"median": statistics.median(plans), "slowest": plans[-1]},
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
