"""Plants small faults, one at a time, in the code that guarantees rest on, and looks whether the
nearest tests notice.

    python scripts/mutants.py --sample 120   # so many of each package, chosen by a fixed seed;
    without it, all python scripts/mutants.py --only secagg/shares.py --jobs 1 python
    scripts/mutants.py --again        # those that survived and are not listed as harmless, once
    more python scripts/mutants.py --retrace      # with all tests traced anew: after functions were
    renamed python scripts/mutants.py --report       # what is known, without playing any

The nearest tests of a function are those that enter it, the quickest first; then those that enter
its file. A trace of the tests tells which these are: it takes some ten minutes, and later runs
trace only files of tests that changed. Outcomes are kept as they come, so that a run that is broken
off goes on. A fault that survives and is harmless is listed in docs/review.md, by name and with the
reason. Any other that survives is a blind spot, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import mutant_runner
from mutant_operators import Mutant, mutants

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "dpfl"
PACKAGES = ("privacy", "secagg", "client", "protocol", "node", "gradients", "certificate")
TESTS = (*PACKAGES, "server", "engines")
"""Folders of tests that are traced."""

RESULTS = ROOT / "build" / "mutants.json"
PAGE = ROOT / "docs" / "review.md"
SEED = 27
SECONDS = 60
"""Processor time for one mutant, at least; and four times what its tests take without a fault."""


def all_mutants(packages: Iterable[str] = PACKAGES) -> list[Mutant]:
    """Lists every mutant of these packages, file by file."""
    files = [file for package in packages for file in sorted((PACKAGE / package).rglob("*.py"))]
    return [mutant for file in files for mutant in mutants(PACKAGE, str(file.relative_to(PACKAGE)))]


def sample(of: Sequence[Mutant], each: int, seed: int = SEED) -> list[Mutant]:
    """Chooses so many mutants of each package by a digest of their names: an edit elsewhere does
    not change the choice.
    """
    chosen = []
    for package in PACKAGES:
        own = [mutant for mutant in of if mutant.file.startswith(f"{package}/")]
        drawn = sorted(
            own, key=lambda mutant: hashlib.sha256(f"{seed} {mutant.name}".encode()).digest()
        )[:each]
        chosen += [mutant for mutant in own if mutant in drawn]
    return chosen


class Nearness:
    """The traced tests, by the functions and by the files that they enter, the quickest first."""

    def __init__(self, traced: Mapping[str, Mapping[str, Any]]) -> None:
        self._functions: dict[str, list[tuple[float, str]]] = {}
        self._files: dict[str, list[tuple[float, str]]] = {}
        for seconds, name in sorted((test["seconds"], name) for name, test in traced.items()):
            functions = traced[name]["functions"]
            for function in functions:
                self._functions.setdefault(function, []).append((seconds, name))
            for file in {function.split(":")[0] for function in functions}:
                self._files.setdefault(file, []).append((seconds, name))

    def of(self, mutant: Mutant, patience: float) -> list[str]:
        """Lists the tests for a mutant.

        Those that enter its function come first, until `patience` seconds, as traced without a
        fault; then those that enter its file, while all of them take less than a third of that. No
        test enters the body of a class or of a module: there the tests of its functions count, and
        those of the file's own tests and of its package come first.
        """
        inside = self._functions.get(f"{mutant.file}:{mutant.function}", [])
        beside = sorted(
            self._files.get(mutant.file, []),
            key=lambda test: (_distance(mutant.file, test[1]), *test),
        )
        if not inside:
            methods = {
                test
                for name, tests in self._functions.items()
                for test in tests
                if self._is_below(name, mutant)
            }
            inside = [
                test for test in beside if test in methods or _distance(mutant.file, test[1]) == 0
            ] or beside
        entered = {*inside}
        chosen, total = [], 0.0
        for tests, limit in (
            (inside, patience),
            ([test for test in beside if test not in entered], patience / 3),
        ):
            for seconds, name in tests:
                if total + seconds > limit and chosen:
                    break
                chosen.append(name)
                total += seconds
        return chosen

    @staticmethod
    def _is_below(function: str, mutant: Mutant) -> bool:
        return function.startswith(f"{mutant.file}:{mutant.function}{'.' * bool(mutant.function)}")


def _distance(file: str, test: str) -> int:
    """Judges by names: 0 for the tests of a file, 1 for those of its package, 2 for others."""
    package, _, stem = file.removesuffix(".py").partition("/")
    if not test.startswith(f"tests/{package}/"):
        return 2
    return 0 if _file_of(test).endswith(f"/test_{stem.rpartition('/')[2]}.py") else 1


def harmless() -> set[str]:
    """The names of mutants that the page lists as harmless."""
    return set(re.findall(r"`([\w/]+\.py:[\w.]+:\w+:\d+)`", PAGE.read_text()))


class Results:
    """Outcomes by the name of the mutant, on disk as they come; one of another text under the same
    name is forgotten.
    """

    def __init__(self, file: Path) -> None:
        self._file, self._tests = file, file.with_suffix(".tests.json")
        trace = _read(self._tests)
        self.traced: dict[str, dict[str, Any]] = trace.get("tests", {})
        self.files: dict[str, str] = trace.get("files", {})
        self.outcomes: dict[str, dict[str, Any]] = _read(file)

    def of(self, mutant: Mutant) -> dict[str, Any] | None:
        outcome = self.outcomes.get(mutant.name)
        return outcome if outcome and outcome["diff"] == difference(mutant) else None

    def write(self) -> None:
        """Writes the outcomes, whole or not at all."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._file.with_suffix(".new")
        unfinished.write_text(json.dumps(self.outcomes, indent=1))
        unfinished.replace(self._file)

    def trace(self, files: Mapping[str, str]) -> None:
        """Traces the files of tests that are new or changed since, and forgets those that are gone.

        Args:
            files: The digest of each file, by its path from the root.
        """
        changed = [file for file, digest in files.items() if self.files.get(file) != digest]
        self.traced = {
            name: test
            for name, test in self.traced.items()
            if _file_of(name) in {*files} - {*changed}
        }
        if changed:
            print(f"tracing {len(changed)} files of tests ...", flush=True)
            self.traced |= mutant_runner.trace(changed)
        self.files = dict(files)
        self._tests.parent.mkdir(parents=True, exist_ok=True)
        self._tests.write_text(json.dumps({"files": self.files, "tests": self.traced}))


def _file_of(test: str) -> str:
    return test.split("::")[0]


def files_of_tests(folders: Iterable[str] = TESTS) -> dict[str, str]:
    """Returns the files of tests that are traced, each with a digest of its text."""
    files = [
        file for folder in folders for file in sorted((ROOT / "tests" / folder).glob("test_*.py"))
    ]
    return {
        str(file.relative_to(ROOT)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files
    }


def _read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text()) if file.exists() else {}  # type: ignore[no-any-return]


def difference(mutant: Mutant) -> str:
    """What the mutant changes, without the place."""
    diff = mutant.diff((PACKAGE / mutant.file).read_bytes())
    return "\n".join(line for line in diff.splitlines() if not line.startswith("@@"))


def play(chosen: Sequence[Mutant], results: Results, jobs: int, patience: float) -> None:
    """Runs each mutant against its nearest tests and keeps the outcome."""
    mutant_runner.warm()
    results.trace(files_of_tests())
    near_by = Nearness(results.traced)
    tests = [(mutant, near_by.of(mutant, patience)) for mutant in chosen]
    for mutant, near in tests:
        if not near:
            results.outcomes[mutant.name] = _kept(mutant, "survived", "no test enters it", 0.0, 0)
    playable = [(mutant, near) for mutant, near in tests if near]
    for number, (mutant, outcome) in enumerate(
        mutant_runner.run(playable, jobs, max(SECONDS, int(4 * patience))), start=1
    ):
        results.outcomes[mutant.name] = _kept(
            mutant, outcome.status, outcome.by, outcome.seconds, outcome.tests
        )
        results.write()
        if outcome.status == "survived" or number % 25 == 0:
            print(f"{number}/{len(playable)} {outcome.status} {mutant.name}", flush=True)
    results.write()


def _kept(mutant: Mutant, status: str, by: str, seconds: float, tests: int) -> dict[str, Any]:
    return {
        "status": status,
        "by": by,
        "seconds": seconds,
        "tests": tests,
        "diff": difference(mutant),
    }


def report(chosen: Sequence[Mutant], results: Results) -> int:
    """Prints a table by package and the survivors; returns how many of them nobody explained."""
    explained, counts, blind = harmless(), Counter[tuple[str, str]](), []
    for mutant in chosen:
        outcome = results.of(mutant)
        status = outcome["status"] if outcome else "not played"
        if status == "survived":
            status = "harmless" if mutant.name in explained else "blind spot"
        if status == "blind spot":
            blind.append(mutant)
        counts[mutant.file.split("/")[0], "killed" if status == "timeout" else status] += 1
    columns = ("killed", "harmless", "blind spot", "not played")
    print(f"{'':12}" + "".join(f"{column:>12}" for column in columns) + f"{'of harmful':>12}")
    for package in (*PACKAGES, "all"):
        row = [
            sum(
                n
                for (of, status), n in counts.items()
                if status == column and package in (of, "all")
            )
            for column in columns
        ]
        share = f"{row[0] / (row[0] + row[2]):.1%}" if row[0] + row[2] else "-"
        print(f"{package:12}" + "".join(f"{number:12}" for number in row) + f"{share:>12}")
    for mutant in blind:
        print(f"\n{mutant.name}\n{difference(mutant)}")
    return len(blind)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sample", type=int, help="mutants of each package, by a fixed seed; all by default"
    )
    parser.add_argument(
        "--only",
        nargs="*",
        default=[],
        help="beginnings of names, such as secagg/ or privacy/ledger/limit.py:Share",
    )
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    parser.add_argument(
        "--patience",
        type=float,
        default=15.0,
        help="seconds of tests for one mutant, as traced without a fault",
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="play those that survived and are not harmless once more",
    )
    parser.add_argument(
        "--retrace",
        action="store_true",
        help="trace all tests anew, not only the files that changed",
    )
    parser.add_argument("--report", action="store_true", help="play none, and show what is known")
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args(words)
    chosen, results = all_mutants(), Results(given.results)
    if given.sample:
        chosen = sample(chosen, given.sample)
    if given.only:
        chosen = [mutant for mutant in chosen if mutant.name.startswith(tuple(given.only))]
    if not given.report:
        if given.retrace:
            results.files = {}
        explained = harmless()
        due = [
            mutant
            for mutant in chosen
            if _due(results.of(mutant), given.again and mutant.name not in explained)
        ]
        print(f"{len(due)} of {len(chosen)} mutants are to be played")
        play(due, results, given.jobs, given.patience)
    return 1 if report(chosen, results) else 0


def _due(outcome: Mapping[str, Any] | None, again: bool) -> bool:
    return outcome is None or (again and outcome["status"] == "survived")


if __name__ == "__main__":
    sys.exit(main())
