"""Runs all benchmarks: `python -m benchmarks.run [--only NAME ...] [--quick]`.

It prints the table, and writes it to RESULTS.md, and every repetition and check to results.json.
"""

from __future__ import annotations

import argparse
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
from benchmarks.harness import Contender, Measurement, compare
from benchmarks.report import Line, markdown, plain

HERE = Path(__file__).parent
PIECES = ("steps", "whole_run", "as_documented", "client_level", "population", "accounting")
PACKAGES = (
    "dpfl",
    "torch",
    "numpy",
    "opacus",
    "jax",
    "jaxlib",
    "jax-privacy",
    "pfl",
    "flwr",
    "ray",
    "dp-accounting",
)


@dataclass
class Bench:
    """The settings of a piece, its folder for temporary files, and the details of its result."""

    quick: bool
    repetitions: int
    scratch: Path
    details: dict[str, Any] = field(default_factory=dict)

    def say(self, text: str) -> None:
        """Prints a line with the time."""
        print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)

    def compare(self, contenders: Sequence[Contender]) -> dict[str, Measurement]:
        """Checks and measures contenders."""
        return compare(contenders, self.repetitions, self.scratch, self.say)

    def keep(self, work: str, measurements: dict[str, Measurement]) -> None:
        """Adds measurements to the details of results.json."""
        self.details[work] = [one.to_dict() for one in measurements.values()]


def main() -> None:
    """Measures the chosen pieces and writes the results."""
    options = _options()
    records = _read_records(options.out)
    with tempfile.TemporaryDirectory(prefix="dpfl-bench-") as folder:
        for name in options.only or PIECES:
            bench = Bench(
                options.quick, options.repetitions or (3 if options.quick else 5), Path(folder)
            )
            lines = importlib.import_module(f"benchmarks.{name}").run(bench)
            print(plain(lines), flush=True)
            records[name] = _record(lines, bench)
            _write(options.out, records)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", nargs="+", choices=PIECES, metavar="NAME", help=f"some of {', '.join(PIECES)}"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="fewer rounds and repetitions, to see that everything works",
    )
    parser.add_argument("--repetitions", type=int, help="5, or 3 with --quick")
    parser.add_argument(
        "--out", type=Path, default=HERE, help="where RESULTS.md and results.json go"
    )
    return parser.parse_args()


def _read_records(out: Path) -> dict[str, Any]:
    """Reads the earlier results by piece: a run of some pieces does not change the others."""
    path = out / "results.json"
    return json.loads(path.read_text()) if path.exists() else {}


def _record(lines: Sequence[Line], bench: Bench) -> dict[str, Any]:
    return {
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES}
        | {"python": platform.python_version()},
        "machine": {
            "cpus": os.cpu_count(),
            "processor": _processor(),
            "load at the end": os.getloadavg()[0],
        },
        "data": datasets.names(),
        "repetitions": bench.repetitions,
        "quick": bench.quick,
        "at": time.strftime("%Y-%m-%d %H:%M"),
        "table": [line.cells() for line in lines],
        "details": bench.details,
    }


def _write(out: Path, records: dict[str, Any]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(records, indent=1) + "\n")
    sections = [_section(name, records[name]) for name in PIECES if name in records]
    page = [(HERE / "HEAD.md").read_text(), *sections, (HERE / "NOTES.md").read_text()]
    (out / "RESULTS.md").write_text("\n\n".join(part.strip() for part in page) + "\n")


def _section(name: str, record: dict[str, Any]) -> str:
    versions = ", ".join(f"{package} {version}" for package, version in record["versions"].items())
    quick_note = ", **quick: fewer rounds**" if record["quick"] else ""
    machine = record["machine"]
    return f"""## {name}

{record["at"]}, {record["repetitions"]} repetitions{quick_note}; {machine["cpus"]} cores ({machine["processor"]}), load average
{machine["load at the end"]:.1f} at the end; data: {", ".join(record["data"].values())}. {versions}.

{markdown(record["table"])}"""  # noqa: E501


def _processor() -> str:
    for line in (
        Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ()
    ):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


if __name__ == "__main__":
    main()
