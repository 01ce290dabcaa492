"""Plants one small fault at a time in the code that guarantees rest on, and checks whether the
nearest tests fail.

    python scripts/mutants.py --sample 120  # 120 of each package by a fixed seed; by default all
    python scripts/mutants.py --only secagg/shares.py --jobs 1
    python scripts/mutants.py --again       # runs survivors that are not listed as harmless again
    python scripts/mutants.py --retrace     # traces all tests again, after functions were renamed
    python scripts/mutants.py --report      # prints stored outcomes and runs none

The nearest tests of a function are those that enter it, the quickest first, then those that enter
its file. A trace of the tests finds them. It takes about ten minutes, and later runs trace only
test files that changed. Outcomes are stored one by one, so an interrupted run continues where it
stopped. docs/review.md lists the survivors that are harmless, each with the reason. Any other
survivor is a blind spot, and the exit code is 1.
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
"""Folders of tests to trace."""

RESULTS = ROOT / "build" / "mutants.json"
PAGE = ROOT / "docs" / "review.md"
SEED = 27
SECONDS = 60
"""The limit of processor time for a mutant, unless four times the patience is more."""


def all_mutants(packages: Iterable[str] = PACKAGES) -> list[Mutant]:
    """Lists every mutant of these packages, file by file."""
    files = [file for package in packages for file in sorted((PACKAGE / package).rglob("*.py"))]
    return [mutant for file in files for mutant in mutants(PACKAGE, str(file.relative_to(PACKAGE)))]


def sample(of: Sequence[Mutant], each: int, seed: int = SEED) -> list[Mutant]:
    """Chooses some mutants of each package by a digest of their names.

    An edit elsewhere does not change the choice.
    """
    selection = []
    for package in PACKAGES:
        own = [mutant for mutant in of if mutant.file.startswith(f"{package}/")]
        first = sorted(
            own, key=lambda mutant: hashlib.sha256(f"{seed} {mutant.name}".encode()).digest()
        )[:each]
        selection += [mutant for mutant in own if mutant in first]
    return selection


class Nearness:
    """The tests by the functions and by the files that they enter, the quickest first."""

    def __init__(self, tests: Mapping[str, Mapping[str, Any]]) -> None:
        self._functions: dict[str, list[tuple[float, str]]] = {}
        self._files: dict[str, list[tuple[float, str]]] = {}
        for seconds, name in sorted((test["seconds"], name) for name, test in tests.items()):
            functions = tests[name]["functions"]
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
        inner_tests = {*inside}
        names, total = [], 0.0
        for tests, limit in (
            (inside, patience),
            ([test for test in beside if test not in inner_tests], patience / 3),
        ):
            for seconds, name in tests:
                if total + seconds > limit and names:
                    break
                names.append(name)
                total += seconds
        return names

    @staticmethod
    def _is_below(function: str, mutant: Mutant) -> bool:
        return function.startswith(f"{mutant.file}:{mutant.function}{'.' * bool(mutant.function)}")


def _distance(file: str, test: str) -> int:
    """Returns 0 for a test in the test file of a file, 1 for one of its package, 2 for others."""
    package, _, stem = file.removesuffix(".py").partition("/")
    if not test.startswith(f"tests/{package}/"):
        return 2
    return 0 if _file_of(test).endswith(f"/test_{stem.rpartition('/')[2]}.py") else 1


def harmless() -> set[str]:
    """The names of mutants that the page lists as harmless."""
    return set(re.findall(r"`([\w/]+\.py:[\w.]+:\w+:\d+)`", PAGE.read_text()))


class Results:
    """Outcomes by the name of the mutant, stored on disk one by one.

    An outcome counts only for the same change: an edit may give its name to another one.
    """

    def __init__(self, file: Path) -> None:
        self._file, self._trace_file = file, file.with_suffix(".tests.json")
        trace = _read(self._trace_file)
        self.tests: dict[str, dict[str, Any]] = trace.get("tests", {})
        self.files: dict[str, str] = trace.get("files", {})
        self.outcomes: dict[str, dict[str, Any]] = _read(file)

    def of(self, mutant: Mutant) -> dict[str, Any] | None:
        """Returns the outcome of a mutant, or None."""
        outcome = self.outcomes.get(mutant.name)
        return outcome if outcome and outcome["diff"] == difference(mutant) else None

    def write(self) -> None:
        """Writes the outcomes in one step, so that no half of a file remains."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        draft = self._file.with_suffix(".new")
        draft.write_text(json.dumps(self.outcomes, indent=1))
        draft.replace(self._file)

    def trace(self, files: Mapping[str, str]) -> None:
        """Traces new and changed test files, and drops those that no longer exist.

        Args:
            files: The digest of each file, by its path from the root.
        """
        new_files = [file for file, digest in files.items() if self.files.get(file) != digest]
        self.tests = {
            name: test
            for name, test in self.tests.items()
            if _file_of(name) in {*files} - {*new_files}
        }
        if new_files:
            print(f"tracing {len(new_files)} files of tests ...", flush=True)
            self.tests |= mutant_runner.trace(new_files)
        self.files = dict(files)
        self._trace_file.parent.mkdir(parents=True, exist_ok=True)
        self._trace_file.write_text(json.dumps({"files": self.files, "tests": self.tests}))


def _file_of(test: str) -> str:
    return test.split("::")[0]


def files_of_tests(folders: Iterable[str] = TESTS) -> dict[str, str]:
    """Returns the test files to trace, each with a digest of its text."""
    files = [
        file for folder in folders for file in sorted((ROOT / "tests" / folder).glob("test_*.py"))
    ]
    return {
        str(file.relative_to(ROOT)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files
    }


def _read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text()) if file.exists() else {}  # type: ignore[no-any-return]


def difference(mutant: Mutant) -> str:
    """Returns the change of a mutant, without its place."""
    diff = mutant.diff((PACKAGE / mutant.file).read_bytes())
    return "\n".join(line for line in diff.splitlines() if not line.startswith("@@"))


def play(mutant_list: Sequence[Mutant], results: Results, jobs: int, patience: float) -> None:
    """Runs the nearest tests of each mutant and stores the outcomes."""
    mutant_runner.warm()
    results.trace(files_of_tests())
    near_by = Nearness(results.tests)
    tests = [(mutant, near_by.of(mutant, patience)) for mutant in mutant_list]
    for mutant, near in tests:
        if not near:
            results.outcomes[mutant.name] = _record(mutant, "survived", "no test enters it", 0.0, 0)
    playable = [(mutant, near) for mutant, near in tests if near]
    for number, (mutant, outcome) in enumerate(
        mutant_runner.run(playable, jobs, max(SECONDS, int(4 * patience))), start=1
    ):
        results.outcomes[mutant.name] = _record(
            mutant, outcome.status, outcome.by, outcome.seconds, outcome.tests
        )
        results.write()
        if outcome.status == "survived" or number % 25 == 0:
            print(f"{number}/{len(playable)} {outcome.status} {mutant.name}", flush=True)
    results.write()


def _record(mutant: Mutant, status: str, by: str, seconds: float, tests: int) -> dict[str, Any]:
    return {
        "status": status,
        "by": by,
        "seconds": seconds,
        "tests": tests,
        "diff": difference(mutant),
    }


def report(mutant_list: Sequence[Mutant], results: Results) -> int:
    """Prints a table by package and the blind spots, and returns the number of blind spots."""
    harmless_names, counts, blind = harmless(), Counter[tuple[str, str]](), []
    for mutant in mutant_list:
        outcome = results.of(mutant)
        status = outcome["status"] if outcome else "not run"
        if status == "survived":
            status = "harmless" if mutant.name in harmless_names else "blind spot"
        if status == "blind spot":
            blind.append(mutant)
        counts[mutant.file.split("/")[0], "killed" if status == "timeout" else status] += 1
    columns = ("killed", "harmless", "blind spot", "not run")
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
    """Runs mutants and prints the report. Returns 1 if there is a blind spot."""
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
        help="run survivors that are not listed as harmless again",
    )
    parser.add_argument(
        "--retrace",
        action="store_true",
        help="trace all tests again, not only the files that changed",
    )
    parser.add_argument(
        "--report", action="store_true", help="run none, and print the stored outcomes"
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(words)
    mutant_list, results = all_mutants(), Results(options.results)
    if options.sample:
        mutant_list = sample(mutant_list, options.sample)
    if options.only:
        mutant_list = [
            mutant for mutant in mutant_list if mutant.name.startswith(tuple(options.only))
        ]
    if not options.report:
        if options.retrace:
            results.files = {}
        harmless_names = harmless()
        due = [
            mutant
            for mutant in mutant_list
            if _due(results.of(mutant), options.again and mutant.name not in harmless_names)
        ]
        print(f"{len(due)} of {len(mutant_list)} mutants to run")
        play(due, results, options.jobs, options.patience)
    return 1 if report(mutant_list, results) else 0


def _due(outcome: Mapping[str, Any] | None, again: bool) -> bool:
    return outcome is None or (again and outcome["status"] == "survived")


if __name__ == "__main__":
    sys.exit(main())
