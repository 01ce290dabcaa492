"""What pages cost: training while twenty watch it, a list of a thousand runs, and the planner's
answers, all in one run.

    python -m benchmarks.viewers [--viewers 20] [--rounds 40] [--pairs 5] [--runs 1000]

Training is `dpfl run` with one worker, beside a server over its folder that nobody looks at, and
beside the same server with so many open event streams, in turn. Its time is that of its rounds, as
the run counts them. What is not training is in seconds.
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
def served(runs: Path) -> Iterator[str]:
    command = [sys.executable, "-c", PROGRAM, "ui", "--runs", str(runs), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = next(line for line in iter(process.stderr.readline, "") if "http://" in line)
    try:
        yield "http://" + said.partition("http://")[2].split()[0]
    finally:
        process.terminate()
        process.wait(20)


def watch(address: str, name: str, folder: Path, ended: threading.Event) -> None:
    """One page: every event is read to the end of the run."""
    while not RunFolder(folder).begun() and not ended.is_set():
        time.sleep(0.1)
    query = urllib.parse.urlencode({"name": name})
    while not ended.is_set():
        with urllib.request.urlopen(f"{address}api/events?{query}", timeout=60) as stream:
            for line in stream:
                if ended.is_set() or b'"over": true' in line:
                    break


def trained(runs: Path, address: str, name: str, rounds: int, viewers: int) -> float:
    """Seconds a round, of the rounds after the first."""
    ended = threading.Event()
    pages = [
        threading.Thread(target=watch, args=(address, name, runs / name, ended), daemon=True)
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
    ended.set()
    rows = read_rows(runs / name / METRICS)
    return (rows[-1].seconds - rows[0].seconds) / (len(rows) - 1)


def many(runs: Path, count: int, of: Path) -> tuple[float, float]:
    """Seconds to list so many runs that were never read, and again."""
    for number in range(count):
        (runs / f"run-{number:05}").mkdir(parents=True)
        for file in ("experiment.toml", "result.json", METRICS):
            shutil.copyfile(of / file, runs / f"run-{number:05}" / file)
    shelf, times = RunIndex(runs), []
    for _ in range(2):
        start = time.perf_counter()
        assert len(shelf.lines()) == count
        times.append(time.perf_counter() - start)
    return times[0], times[1]


def planned() -> list[float]:
    """Seconds of answers that were never asked for before, as a slider moves."""
    answer(PlanRequest(epsilon=1.0, rounds=10))
    times = []
    for step in range(20):
        start = time.perf_counter()
        answer(PlanRequest(epsilon=round(0.5 * 1.2**step, 3), rounds=50 + 20 * step))
        times.append(time.perf_counter() - start)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, usual in {"viewers": 20, "rounds": 40, "pairs": 5, "runs": 1000}.items():
        parser.add_argument(f"--{name}", type=int, default=usual)
    asked = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as scratch:
        runs = Path(scratch) / "runs"
        runs.mkdir()
        ratios = []
        with served(runs) as address:
            for pair in range(asked.pairs):
                times = {}
                for viewers in (0, asked.viewers) if pair % 2 else (asked.viewers, 0):
                    times[viewers] = trained(
                        runs, address, f"pair-{pair}-{viewers}", asked.rounds, viewers
                    )
                ratios.append(times[asked.viewers] / times[0])
        first, again = many(Path(scratch) / "many", asked.runs, runs / f"pair-0-{asked.viewers}")
        plans = sorted(planned())
    found = {
        "training, watched over alone": {
            "viewers": asked.viewers,
            "median": statistics.median(ratios),
            "all": ratios,
        },
        "list, seconds": {"runs": asked.runs, "first": first, "again": again},
        "plan, seconds": {"median": statistics.median(plans), "slowest": plans[-1]},
    }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
