"""Random kills in a federation of real processes, and what the ledgers say after it: no release may be uncounted.

    python scripts/soak.py [--kills 20] [--nodes 3] [--rounds 40] [--seed 0] [--folder DIR]

Every few seconds one of these is killed with -9: a node, its SuperNode, the server, its SuperLink; or a node is stopped
(SIGSTOP) past the deadline of a round and let go on. Nodes are started again as a supervisor would, the server goes on with
--resume. In the end every release that a node's log tells of must be in its ledger, whose chain must be whole.
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
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import tomli_w

from dpfl.experiment import parse
from dpfl.flower.up import laid_out
from dpfl.privacy import Ledger
from dpfl.run.folder import RunFolder

DEADLINE = 20.0
LONGEST = 1800.0
PAUSE = (2.0, 8.0)
KINDS = ("node", "supernode", "server", "superlink", "stopped node")
CONTENT: dict[str, Any] = {
    "data": {"name": "mnist-sample", "partition": "iid", "clients": 3},
    "model": {"name": "mlp", "hidden": 16},
    "algorithm": {"name": "fedavg-dp", "tau": 2, "sampling_rate": 0.02, "noise_multiplier": 1.0},
    "budget": {"epsilon": 8.0, "delta": 1e-5},
    "privacy": {"accountant": "rdp"},
    "engine": {"deadline": DEADLINE, "joining": 120.0, "least_replies": 1},
    "evaluate": {"every": 1000},
}


class Soak:
    def __init__(self, folder: Path, nodes: int, rounds: int) -> None:
        content = CONTENT | {"budget": CONTENT["budget"] | {"rounds": rounds}}
        experiment = parse(content)
        limits = {"epsilon": 100.0, "delta": 1e-5, "accountant": "rdp"}
        allow = {"systems": ["fedavg-dp"], "models": ["mlp"]}
        address, lines = laid_out(folder, experiment.dealt(nodes), limits, allow, {"size": "exact"})
        server = {"folder": str(folder / "server"), "address": address, "nodes": lines}
        self.folder, self.run = folder, folder / "run"
        self.file = folder / "experiment.toml"
        self.file.write_text(tomli_w.dumps(content | {"server": server}))
        self.nodes = {name: self._start("node", "run", str(folder / "nodes" / name), log=name) for name in lines}
        self.server = self._serve()
        self.waking: list[tuple[float, int]] = []

    def _start(self, *words: str, log: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "DPFL_PARENT": str(os.getpid()), "OMP_NUM_THREADS": "1"}
        with (self.folder / f"{log}.log").open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "dpfl.cli", *words], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env=environment, start_new_session=True,
            )  # fmt: skip

    def _serve(self) -> subprocess.Popen[bytes]:
        if RunFolder(self.run).begun():
            return self._start("server", "run", "--resume", str(self.run), "--quiet", log="server-output")
        if self.run.exists():
            self.run.rename(self.folder / f"run-{time.time():.0f}")
        return self._start("server", "run", str(self.file), "--out", str(self.run), "--quiet", log="server-output")

    def keep_up(self) -> bool:
        """Whether the run goes on; whoever ended is started again."""
        for name, process in self.nodes.items():
            if process.poll() is not None:
                self.nodes[name] = self._start("node", "run", str(self.folder / "nodes" / name), log=name)
        for when, process_id in [one for one in self.waking if one[0] <= time.monotonic()]:
            self.waking.remove((when, process_id))
            with suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGCONT)
        if self.server.poll() is None:
            return True
        if self.server.returncode == 0:
            return False
        time.sleep(1.0)
        self.server = self._serve()
        return True

    def kill(self, kind: str, draw: random.Random) -> bool:
        node = draw.choice(list(self.nodes.values()))
        target = {"node": node.pid, "server": self.server.pid, "stopped node": node.pid}.get(kind)
        if kind in ("supernode", "superlink"):
            target = _child((node if kind == "supernode" else self.server).pid)
        if target is None or any(target == process_id for _, process_id in self.waking):
            return False
        with suppress(ProcessLookupError):
            os.kill(target, signal.SIGSTOP if kind == "stopped node" else signal.SIGKILL)
            if kind == "stopped node":
                self.waking.append((time.monotonic() + 1.5 * DEADLINE, target))
            return True
        return False

    def close(self) -> None:
        for _, process_id in self.waking:
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


def _child(parent: int) -> int | None:
    """The first process that this one started."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            if entry.name.isdigit() and int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) == parent:
                return int(entry.name)
    return None


def told(place: Path) -> tuple[int, int]:
    """Releases that a node's log tells of, and those of orders that it made more than once."""
    orders: dict[str, list[int]] = {}
    for file in sorted(place.glob("node.log*")):
        for line in file.read_text().splitlines():
            with suppress(ValueError):
                said = json.loads(line)
                if said["event"] == "released":
                    orders.setdefault(f"{said['run']}/{said['order']}", []).append(said["count"])
    return sum(map(sum, orders.values())), sum(sum(counts[1:]) for counts in orders.values())


def outcome(soak: Soak, kills: dict[str, int], seconds: float) -> dict[str, Any]:
    nodes = {}
    for name in soak.nodes:
        place = soak.folder / "nodes" / name
        with closing(Ledger.read(place / "ledger" / f"{name}.sqlite")) as ledger:
            paid = sum(ledger.spent().values())
        released, again = told(place)
        nodes[name] = {"released": released, "of them again": again, "paid": paid, "uncounted": max(0, released - paid)}
    result = json.loads((soak.run / "result.json").read_text())
    lost = result.get("lost", [])
    return {"kills": kills, "seconds": round(seconds), "rounds": result["rounds"], "replies lost": len(lost), "nodes": nodes}


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, usual in (("kills", 20), ("nodes", 3), ("rounds", 40), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--folder", type=Path, default=None)
    said = parser.parse_args()
    draw, kills, start = random.Random(said.seed), dict.fromkeys(KINDS, 0), time.monotonic()
    soak = Soak(said.folder or Path(tempfile.mkdtemp(prefix="dpfl-soak-")), said.nodes, said.rounds)
    try:
        next_kill = time.monotonic() + 20.0
        while soak.keep_up() and time.monotonic() - start < LONGEST:
            if time.monotonic() >= next_kill and sum(kills.values()) < said.kills:
                kind = draw.choice(KINDS)
                kills[kind] += soak.kill(kind, draw)
                next_kill = time.monotonic() + draw.uniform(*PAUSE)
            time.sleep(0.2)
    finally:
        soak.close()
    found = outcome(soak, kills, time.monotonic() - start)
    print(json.dumps(found, indent=2))
    sys.exit(any(node["uncounted"] for node in found["nodes"].values()))


if __name__ == "__main__":
    main()
