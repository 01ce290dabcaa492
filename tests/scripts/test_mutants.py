"""The tool that plants faults, and a few of its mutants, which must be killed; `make mutants` plays
all of them.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import PATIENCE

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"

LEAST = "test_of_several_kinds_of_shared_noise_the_least_is_what_holds"
SAMPLE = {
    "privacy/ledger/limit.py:module:constant:1": (
        "tests/privacy/ledger/test_limit.py::test_a_day_has_86400_seconds"
    ),
    "privacy/mechanisms/noises/noise_shares.py:weakest_shares:extreme:1": (
        f"tests/privacy/mechanisms/noises/test_noise_shares.py::{LEAST}"
    ),
    "privacy/mechanisms/noises/integer_sum.py:IntegerSum.bits:compare:1": (
        "tests/privacy/test_borders.py::TestLevels"
    ),
    "secagg/group.py:threshold:constant:2": "tests/secagg/test_group.py",
    "secagg/member.py:SumMember.agree:unchecked:4": "tests/secagg/test_sabotage.py",
    "node/statement.py:_was_always_limited:compare:3": "tests/node/test_statement.py",
    "gradients/unit_gradients.py:stack:extreme:1": "tests/gradients/test_products.py",
    "certificate/figures.py:between:sign:1": "tests/certificate/test_figures.py",
}
"""Mutants of every package, with the tests that kill each within seconds."""


@pytest.fixture(name="scripts")
def _scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))


SOURCE = '''"""A docstring."""

DAY = 24

def part(x: int = 3, *, most: float = 0.5) -> float:
    """Says 1 in 2."""
    if x < 0 or not x:
        raise ValueError(f"{x + 1} is wrong")
    check_level(x)
    return min(x / 2, -most) if x != 1 else 2.0 * x


class Guard:
    secure = True

    def run(self):
        assert self.secure
        yield self.size > 5, Reason.TOO_MANY
'''


def test_every_kind_of_fault_is_made_and_words_are_left_alone(scripts, tmp_path: Path) -> None:
    from mutant_operators import mutants

    (tmp_path / "part.py").write_text(SOURCE)
    found = mutants(tmp_path, "part.py")
    assert Counter(mutant.operator for mutant in found) == {
        "constant": 8,
        "compare": 3,
        "logic": 2,
        "unchecked": 4,
        "extreme": 1,
        "sign": 1,
        "factor": 2,
        "two": 2,
        "flag": 1,
    }
    assert len({mutant.name for mutant in found}) == len(found)
    for mutant in found:
        changed = mutant.apply(SOURCE.encode()).decode()
        assert changed != SOURCE
        ast.parse(changed)
        assert '"""A docstring."""' in changed
        assert 'f"{x + 1} is wrong"' in changed or mutant.operator == "unchecked"


def test_names_of_mutants_do_not_change_with_lines_above_or_beside(scripts, tmp_path: Path) -> None:
    from mutant_operators import mutants

    (tmp_path / "part.py").write_text(SOURCE)
    before = {mutant.name: mutant.text for mutant in mutants(tmp_path, "part.py")}
    moved = SOURCE.replace(
        "DAY = 24", "\n# more\nOTHER = 'words'\nDAY = 24\n\n\ndef before(x):\n    return x + 9\n"
    )
    (tmp_path / "part.py").write_text(moved)
    after = {mutant.name: mutant.text for mutant in mutants(tmp_path, "part.py")}
    assert {name: text for name, text in after.items() if ":before:" not in name} == before


def test_there_are_thousands_and_a_sample_is_even_and_always_the_same(scripts) -> None:
    import mutants

    every = mutants.all_mutants()
    assert len(every) >= 3000
    assert len({mutant.name for mutant in every}) == len(every)
    chosen = mutants.sample(every, 70)
    assert chosen == mutants.sample(every, 70)
    assert Counter(mutant.file.split("/")[0] for mutant in chosen) == dict.fromkeys(
        mutants.PACKAGES, 70
    )


def test_the_nearest_tests_are_those_that_enter_the_function_the_quickest_first(scripts) -> None:
    import mutants

    mutant = next(
        mutant for mutant in mutants.all_mutants(["secagg"]) if mutant.function == "threshold"
    )
    traced = {
        "slow": {"seconds": 3.0, "functions": ["secagg/group.py:threshold"]},
        "quick": {"seconds": 1.0, "functions": ["secagg/group.py:threshold", "a.py:b"]},
        "beside": {"seconds": 0.1, "functions": ["secagg/group.py:check_sizes"]},
        "elsewhere": {"seconds": 0.1, "functions": ["secagg/protocol/keys.py:threshold"]},
    }
    assert mutants.Nearness(traced).of(mutant, 15.0) == ["quick", "slow", "beside"]
    assert mutants.Nearness(traced).of(mutant, 12.0) == ["quick", "slow"]
    assert mutants.Nearness(traced).of(mutant, 3.2) == ["quick"]
    assert mutants.Nearness({"slow": traced["slow"]}).of(mutant, 0.5) == ["slow"]


def test_for_the_body_of_a_class_or_of_a_module_the_tests_of_its_functions_count(scripts) -> None:
    import mutants

    every = {(mutant.file, mutant.function): mutant for mutant in mutants.all_mutants(["privacy"])}
    traced = {
        "tests/run/test_a.py::far": {
            "seconds": 0.1,
            "functions": ["privacy/mechanisms/sampling.py:Poisson.draw"],
        },
        "tests/privacy/test_b.py::near": {
            "seconds": 1.0,
            "functions": ["privacy/mechanisms/sampling.py:Poisson.draw"],
        },
        "tests/privacy/mechanisms/test_sampling.py::own": {
            "seconds": 2.0,
            "functions": ["privacy/mechanisms/sampling.py:Poisson.event"],
        },
        "tests/privacy/mechanisms/test_sampling.py::size": {
            "seconds": 1.0,
            "functions": ["privacy/mechanisms/sampling.py:PoissonSize.draw"],
        },
        "tests/privacy/ledger/test_limit.py::other": {
            "seconds": 0.1,
            "functions": ["privacy/ledger/limit.py:Limit.covers"],
        },
    }
    own, near, far, size, other = (
        "tests/privacy/mechanisms/test_sampling.py::own",
        "tests/privacy/test_b.py::near",
        "tests/run/test_a.py::far",
        "tests/privacy/mechanisms/test_sampling.py::size",
        "tests/privacy/ledger/test_limit.py::other",
    )
    near_by = mutants.Nearness(traced)
    assert near_by.of(every["privacy/mechanisms/sampling.py", "Poisson"], 15.0) == [
        size,
        own,
        near,
        far,
    ]
    assert near_by.of(every["privacy/ledger/limit.py", ""], 15.0) == [other]


def test_a_test_that_fails_without_a_fault_kills_nothing(scripts) -> None:
    from mutant_runner import Tracer

    tracer = Tracer(str(ROOT / "src" / "dpfl"))
    for name, outcome in (("good", "passed"), ("bad", "failed"), ("left out", "skipped")):
        around = tracer.pytest_runtest_protocol(SimpleNamespace(nodeid=name))
        next(around)
        report = SimpleNamespace(
            nodeid=name, failed=outcome == "failed", skipped=outcome == "skipped"
        )
        tracer.pytest_runtest_logreport(report)
        assert list(around) == []
    assert tracer.to_dict()["tests"].keys() == {"good"}
    assert tracer.to_dict()["failed"] == "bad"


def test_only_files_of_tests_that_changed_are_traced_again(
    scripts, monkeypatch, tmp_path: Path
) -> None:
    import mutants

    traced: list[list[str]] = []

    def trace(files: list[str]) -> dict[str, dict[str, object]]:
        traced.append(files)
        return {f"{file}::test_{len(traced)}": {"seconds": 1.0, "functions": []} for file in files}

    monkeypatch.setattr(mutants.mutant_runner, "trace", trace)
    for files in (
        {"a.py": "1", "b.py": "1", "c.py": "1"},
        {"a.py": "1", "b.py": "2"},
        {"a.py": "1", "b.py": "2"},
    ):
        results = mutants.Results(tmp_path / "outcomes.json")
        results.trace(files)
    assert traced == [["a.py", "b.py", "c.py"], ["b.py"]]
    assert {*mutants.Results(tmp_path / "outcomes.json").tests} == {"a.py::test_1", "b.py::test_2"}


PLAYED = """
import dataclasses, json, sys
import mutant_runner, mutants
wanted = json.loads(sys.argv[1])
named = {mutant.name: mutant for mutant in mutants.all_mutants()}
mutant_runner.warm()
faults = [(named[name], [tests]) for name, tests in wanted.items()]
faultless = [(dataclasses.replace(fault, start=0, end=0, text=""), tests) for fault, tests in faults]
missing = [(faults[0][0], ["tests/privacy/ledger/test_limit.py::test_that_is_not_there"])]
for played in (faults, faultless, missing):
    print(json.dumps({mutant.name: outcome.status for mutant, outcome in mutant_runner.run(played, jobs=2, seconds=600)}))
"""  # noqa: E501


def test_a_sample_of_faults_is_killed_and_the_same_tests_pass_without_them() -> None:
    """In a process of its own, which has not imported dpfl."""
    words = [sys.executable, "-c", PLAYED, json.dumps(SAMPLE)]
    environment = os.environ | {"PYTHONPATH": str(SCRIPTS)}
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    faults, faultless, missing = map(json.loads, done.stdout.splitlines()[-3:])
    assert faults == dict.fromkeys(SAMPLE, "killed")
    assert faultless == dict.fromkeys(SAMPLE, "survived")
    assert [*missing.values()] == ["survived"], "a test that is not there kills nothing"
