"""Measures the cost of a change for a private step.

    python -m benchmarks.exact_cost OTHER/src [--only MODEL ...] [--repetitions N]

The dpfl of the other checkout and of this one run in turn, in separate processes. Both must
give the same clipped sum before they are measured. A figure is the ratio of processor times,
repetition by repetition, so that other work on the machine disturbs it less. Against the last
version without exact arithmetic, the ratio is what exact arithmetic costs.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
from pathlib import Path

from benchmarks.harness import Measurement, compare
from benchmarks.report import Line, at_most, plain, unavailable
from benchmarks.steps import WORK, contenders

STEPS = {"cnn": 12, "mlp": 40, "cnn-wide": 4, "resnet-18": 1}
"""The steps of a repetition, the same for both, since the first steps are slower."""

LIMIT = 1.25
"""How many steps of the other checkout a step may take."""


def main() -> None:
    """Measures the models and prints a line for each."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="dpfl-bench-") as folder:
        for model, batch, _ in WORK:
            if not options.only or model in options.only:
                size = options.batch or batch
                line = _line(model, size, _measure(model, size, options, Path(folder)))
                print(f"{plain([line])}\n{line.note}", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path, help="the folder src of another checkout")
    parser.add_argument(
        "--only", nargs="+", choices=[model for model, _, _ in WORK], metavar="MODEL"
    )
    parser.add_argument("--batch", type=int, help="in place of each model's own")
    parser.add_argument("--repetitions", type=int, default=41)
    return parser.parse_args()


def _measure(
    model: str, batch: int, options: argparse.Namespace, scratch: Path
) -> dict[str, Measurement]:
    ours = contenders(model, batch, 0.0)[0]
    ours = dataclasses.replace(ours, options={**ours.options, "steps_each": STEPS[model]})
    other = dataclasses.replace(ours, name="other", source=options.other.resolve())
    return compare([ours, other], options.repetitions, scratch)


def _line(model: str, batch: int, measurements: dict[str, Measurement]) -> Line:
    work, (ours, other) = f"private step, {model}, batch {batch}", measurements.values()
    if ours.failure or other.failure:
        return unavailable(1, work, "dpfl / other", ours.failure or other.failure)
    return Line.ratio(1, work, "dpfl / other", ours, other, at_most(LIMIT), of="processor")


if __name__ == "__main__":
    main()
