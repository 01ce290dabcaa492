"""What answers without computing does not wait for torch, nor for dp-accounting where no epsilon is
asked for.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import dpfl
from dpfl.cli.app import COMMANDS, load_command
from tests.conftest import PATIENCE, small_federation

HEAVY = {"torch", "dp_accounting", "scipy"}
DRIVER = f"""
import json, sys
from dpfl.cli import main
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
print(json.dumps(sorted({HEAVY} & set(sys.modules))), file=sys.stderr)
"""


def imported(code: str, *words: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lazy") / "run"
    dpfl.train(
        model=dpfl.models.mlp(hidden=4),
        federation=small_federation(),
        algorithm=dpfl.algorithms.fedavg_dp(noise_multiplier=2.0, sampling_rate=0.5),
        budget=dpfl.Budget(rounds=1),
        execution=dpfl.Execution(out=folder),
    )
    return folder


def test_importing_the_package_imports_nothing_heavy():
    code = (
        f"import json, sys, dpfl; print(json.dumps(sorted(({HEAVY} | {{'numpy'}}) & "
        "set(sys.modules))), file=sys.stderr)"
    )
    assert imported(code) == set()


@pytest.mark.parametrize(
    "words",
    [["--version"], ["--help"], ["algorithms"], ["algorithms", "auto"], ["ledger", "--help"]],
)
def test_answers_without_a_run_need_nothing_heavy(words):
    assert imported(DRIVER, *words) == set()


def test_runs_are_listed_and_compared_without_anything_heavy(finished):
    assert imported(DRIVER, "runs", str(finished.parent)) == set()
    assert imported(DRIVER, "compare", str(finished)) == set()


def test_ledgers_are_shown_without_torch(finished):
    assert imported(DRIVER, "ledger", "show", str(finished / "ledger")) == HEAVY - {"torch"}


def test_a_certificate_is_verified_without_torch(finished, tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.json"
    dpfl.certificate.new_key(key)
    certificate.write_text(json.dumps(dpfl.certificate.certify(finished, key)))
    assert imported(DRIVER, "verify", str(certificate), "--run", str(finished)) == HEAVY - {"torch"}


def test_every_public_name_is_reachable_without_an_import_of_its_own():
    code = (
        "import dpfl, json, sys; [getattr(dpfl, name) for name in dir(dpfl)]; "
        "dpfl.audit.audit; "
        "print('[]', file=sys.stderr)"
    )
    assert imported(code) == set()
    assert set(dir(dpfl)) == set(dpfl.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        dpfl.nothing  # noqa: B018


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_what_its_line_says(name):
    words = " ".join((load_command(name).help or "").split())
    assert words.startswith(COMMANDS[name][1].rstrip("."))
