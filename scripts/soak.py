"""Kills processes of a real federation at random, then checks that every release has a debit in a
ledger.

    python scripts/soak.py [--kills 20] [--nodes 3] [--rounds 60] [--seed 0] [--folder DIR]

Every few seconds the script picks one of these: it kills (-9) a node, a node right after a debit,
its SuperNode, the server, or its SuperLink, or it stops a node (SIGSTOP) until after the deadline
of a round. It starts nodes again as a supervisor would, and the server with --resume. At the end,
soak_check.py compares logs and ledgers. The exit code is 1 if they disagree, if the run did not
end, or if there were fewer kills than requested.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import tomli_w

from dpfl.config.experiment import parse
from dpfl.run.records.folder import RunFolder
from dpfl.transports.flower.local_federation import write_layout

sys.path.insert(0, str(Path(__file__).parent))
from soak_check import SoakReport, read

DEADLINE = 20.0
LONGEST = 2400.0
PAUSE = (2.0, 12.0)
DEBIT_WAIT = 15.0
"""Seconds to wait for a debit before a node is killed."""
KINDS = ("node", "node at a debit", "supernode", "server", "superlink", "stopped node")
CONTENT: dict[str, Any] = {
    "data": {"name": "mnist-sample", "partition": "iid", "clients": 3},
    "model": {"name": "cnn"},
    "algorithm": {"name": "fedavg-dp", "tau": 10, "sampling_rate": 0.1, "noise_multiplier": 4.0},
    "budget": {"epsilon": 20.0, "delta": 1e-5},
    "privacy": {"accountant": "rdp"},
    "engine": {"deadline": DEADLINE, "joining": 120.0, "least_replies": 1},
    "evaluate": {"every": 1000},
}


class Soak:
    """A federation of real processes, some of which are killed."""

    def __init__(self, folder: Path, nodes: int, rounds: int) -> None:
        content = CONTENT | {"budget": CONTENT["budget"] | {"rounds": rounds}}
        experiment = parse(content)
        limits = {"epsilon": 100.0, "delta": 1e-5, "accountant": "rdp"}
        allow = {"systems": ["fedavg-dp"], "models": ["cnn"]}
        address, lines = write_layout(
            folder, experiment.node_sections(nodes), limits, allow, {"size": "exact"}
        )
        server = {"folder": str(folder / "server"), "address": address, "nodes": lines}
        self.folder, self.run = folder, folder / "run"
        self.file = folder / "experiment.toml"
        self.file.write_text(tomli_w.dumps(content | {"server": server}))
        self.nodes = {
            name: self._start("node", "run", str(folder / "nodes" / name), log=name)
            for name in lines
        }
        self.server = self._serve()
        self.stops: list[tuple[float, int]] = []

    def _start(self, *words: str, log: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "DPFL_PARENT": str(os.getpid()), "OMP_NUM_THREADS": "1"}
        with (self.folder / f"{log}.log").open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "dpfl.cli", *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )

    def _serve(self) -> subprocess.Popen[bytes]:
        if RunFolder(self.run).begun():
            return self._start(
                "server", "run", "--resume", str(self.run), "--quiet", log="server-output"
            )
        if self.run.exists():
            self.run.rename(self.folder / f"run-{time.time():.0f}")
        return self._start(
            "server", "run", str(self.file), "--out", str(self.run), "--quiet", log="server-output"
        )

    def keep_up(self) -> bool:
        """Starts again what has ended, and tells whether the run goes on."""
        for name, process in self.nodes.items():
            if process.poll() is not None:
                self.nodes[name] = self._start(
                    "node", "run", str(self.folder / "nodes" / name), log=name
                )
        for stop in [stop for stop in self.stops if stop[0] <= time.monotonic()]:
            self.stops.remove(stop)
            with suppress(ProcessLookupError):
                os.kill(stop[1], signal.SIGCONT)
        if self.server.poll() is None:
            return True
        if self.server.returncode == 0:
            return False
        time.sleep(1.0)
        self.server = self._serve()
        return True

    def kill(self, kind: str, draw: random.Random) -> bool:
        """Kills or stops a process, and tells whether there was one; never one that is stopped."""
        name = draw.choice(list(self.nodes))
        node = self.nodes[name].pid
        if (
            any(node == process_id for _, process_id in self.stops)
            or not RunFolder(self.run).begun()
        ):
            return False
        target: int | None = self.server.pid if kind == "server" else node
        if kind in ("supernode", "superlink"):
            target = _child(node if kind == "supernode" else self.server.pid)
        if kind == "node at a debit" and not self._wait_for_debit(name, draw.uniform(0.0, 0.3)):
            return False
        if target is None:
            return False
        with suppress(ProcessLookupError):
            os.kill(target, signal.SIGSTOP if kind == "stopped node" else signal.SIGKILL)
            if kind == "stopped node":
                self.stops.append((time.monotonic() + 1.5 * DEADLINE, target))
            return True
        return False

    def _wait_for_debit(self, name: str, delay: float) -> bool:
        """Waits for the node's next write to its ledger, then for a delay."""
        path = self.folder / "nodes" / name / "ledger" / f"{name}.sqlite-wal"
        until = time.monotonic() + DEBIT_WAIT
        before = _state(path)
        while _state(path) in (before, None):
            if time.monotonic() > until:
                return False
            time.sleep(0.001)
        time.sleep(delay)
        return True

    def close(self) -> None:
        """Ends every process."""
        for _, process_id in self.stops:
            with suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGCONT)
        for process in (self.server, *self.nodes.values()):
            process.terminate()
        for process in (self.server, *self.nodes.values()):
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _state(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns


def _child(parent: int) -> int | None:
    """Returns the first child process."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            if (
                entry.name.isdigit()
                and int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) == parent
            ):
                return int(entry.name)
    return None


def main() -> None:
    """Runs a soak, prints its report and exits."""
    parser = argparse.ArgumentParser()
    for name, default in (("kills", 20), ("nodes", 3), ("rounds", 60), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # processes are ended then, too
    draw, kills, start = random.Random(options.seed), dict.fromkeys(KINDS, 0), time.monotonic()
    soak = Soak(
        options.folder or Path(tempfile.mkdtemp(prefix="dpfl-soak-")), options.nodes, options.rounds
    )
    try:
        next_kill = time.monotonic() + 20.0
        while soak.keep_up() and time.monotonic() - start < LONGEST:
            if time.monotonic() >= next_kill and sum(kills.values()) < options.kills:
                kind = draw.choice(KINDS)
                kills[kind] += soak.kill(kind, draw)
                next_kill = time.monotonic() + draw.uniform(*PAUSE)
            time.sleep(0.2)
    finally:
        soak.close()
    report: SoakReport = read(soak.folder / "nodes", soak.run)
    summary = {
        "kills": kills,
        "seconds": round(time.monotonic() - start),
        "folder": str(soak.folder),
    }
    print(json.dumps(summary | report.content, indent=2))
    few = report.rounds < options.rounds or sum(kills.values()) < options.kills
    sys.exit(few or not report.consistent)


if __name__ == "__main__":
    main()
