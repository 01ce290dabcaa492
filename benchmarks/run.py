"""Everything in one go: `python -m benchmarks.run [--only NAME ...] [--quick]`.

Prints the table, and writes it to RESULTS.md and, with every repetition and check, to results.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import importlib.metadata
import json
import os
import platform
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import datasets
from benchmarks.harness import Contender, Measured, compare
from benchmarks.report import Line, markdown, plain

HERE = Path(__file__).parent
PIECES = ("steps", "whole_run", "client_level", "population", "accounting")
VERSIONED = ("dpfl", "torch", "numpy", "opacus", "jax", "jaxlib", "jax-privacy", "pfl", "flwr", "ray", "dp-accounting")


@dataclass
class Bench:
    """What a piece of work needs: how long to measure, where to leave things, and where to keep what was found."""

    quick: bool
    repetitions: int
    scratch: Path
    details: dict[str, Any] = field(default_factory=dict)

    def say(self, text: str) -> None:
        print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)

    def compare(self, contenders: Sequence[Contender]) -> dict[str, Measured]:
        return compare(contenders, self.repetitions, self.scratch, self.say)

    def keep(self, work: str, found: dict[str, Measured]) -> None:
        self.details[work] = [dataclasses.asdict(one) for one in found.values()]


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="dpfl-bench-") as folder:
        bench = Bench(options.quick, options.repetitions or (3 if options.quick else 7), Path(folder))
        data = datasets.described()
        bench.say(f"data: {data}")
        lines: list[Line] = []
        start = time.monotonic()
        for name in options.only or PIECES:
            lines += importlib.import_module(f"benchmarks.{name}").run(bench)
            _write(options.out, lines, bench, data, time.monotonic() - start)
    print(plain(lines))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PIECES, metavar="NAME", help=f"some of {', '.join(PIECES)}")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and repetitions, to see that everything works")
    parser.add_argument("--repetitions", type=int, help="7, or 3 with --quick")
    parser.add_argument("--out", type=Path, default=HERE, help="where RESULTS.md and results.json go")
    return parser.parse_args()


def _write(out: Path, lines: Sequence[Line], bench: Bench, data: dict[str, str], seconds: float) -> None:
    out.mkdir(parents=True, exist_ok=True)
    where = {
        "versions": {name: importlib.metadata.version(name) for name in VERSIONED} | {"python": platform.python_version()},
        "machine": {"cpus": os.cpu_count(), "processor": _processor(), "load at the end": os.getloadavg()[0]},
        "data": data,
        "repetitions": bench.repetitions,
        "quick": bench.quick,
        "seconds": round(seconds),
        "at": time.strftime("%Y-%m-%d"),
    }
    kept = {"where": where, "lines": [dataclasses.asdict(line) for line in lines], "details": bench.details}
    (out / "results.json").write_text(json.dumps(kept, indent=1) + "\n")
    (out / "RESULTS.md").write_text(_page(lines, where))


def _page(lines: Sequence[Line], where: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in where["versions"].items())
    data = ", ".join(where["data"].values())
    hurried = " **This was a `--quick` run: fewer rounds and repetitions.**" if where["quick"] else ""
    return f"""# Measured against peers

`make bench` measures all of this in one go, and writes this page and `results.json` (every repetition, every check).{hurried}

{where["at"]}, {where["machine"]["cpus"]} cores ({where["machine"]["processor"]}), no accelerator; data: {data}; median of
{where["repetitions"]} repetitions that took turns, with the least and the greatest; each peer at the fastest of the settings
tried here, and checked to compute the same. Versions: {versions}.

{markdown(lines)}

{(HERE / "NOTES.md").read_text().strip()}
"""


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


if __name__ == "__main__":
    main()
