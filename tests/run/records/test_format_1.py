"""What dpfl 0.1 wrote stays readable: its ledgers count, its runs are read, compared, reported and
verified, not resumed.
"""

from __future__ import annotations

import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

import dpfl
from dpfl.algorithms import from_name
from dpfl.codec import FORMAT
from dpfl.errors import DpflError
from dpfl.privacy import Ledger
from dpfl.privacy.accounting.accountant import proven_accountant
from dpfl.privacy.accounting.events import gaussian
from dpfl.run.records.algorithm_record import algorithm_of
from dpfl.run.records.folder import RunFolder
from dpfl.run.records.format_1 import translate
from tests.cli.command_line import dpfl as command
from tests.cli.command_line import refused

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "v1"
ALGORITHMS = json.loads((FIXTURES / "algorithms.json").read_text())
RUNS = ("sample", "client", "published", "haar", "secure", "person", "over-nodes")
LEDGERS = {
    "sample/ledger/client-00000": ("sample", 3.994908, 103),
    "client/ledger/federation": ("client", 3.999733, 2),
    "haar/ledger/client-00000": ("sample", 3.999872, 2),
    "secure/ledger/client-00000": ("sample", 0.920108, 2),
    "person/ledger/client-00000": ("person", 3.994908, 103),
    "shared-ledger/client-00000": ("sample", 3.997181, 276),
    "node/ledger/node-0": ("sample", 3.936679, 100),
}
"""The unit, the epsilon at delta 1e-5 and the number of releases that version 0.1 showed for its
own ledgers.
"""


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("v1")
    with tarfile.open(FIXTURES / "runs.tgz") as file:
        file.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_system_is_read_from_its_record(name: str) -> None:
    system, _, variant = name.partition(" ")
    now = from_name(system, **({"variant": variant} if variant else {}))
    then = algorithm_of(translate(ALGORITHMS[name]))
    assert replace(then, claim=replace(then.claim, formula=None)) == replace(
        now, claim=replace(now.claim, formula=None)
    )


@pytest.mark.parametrize("name", LEDGERS)
def test_what_a_ledger_of_that_version_spent_still_counts(capsys, old: Path, name: str) -> None:
    unit, epsilon, releases = LEDGERS[name]
    ledger = Ledger.read(old / f"{name}.sqlite")
    try:
        spent = ledger.spending()
        assert sum(spent.values()) == releases
        assert proven_accountant("pld").epsilon(spent, 1e-5) == pytest.approx(epsilon, abs=2e-6)
    finally:
        ledger.close()
    _, shown, _ = command(capsys, "ledger", "show", str(old / f"{name}.sqlite"), "--json")
    (account,) = json.loads(shown)
    assert (account["unit"], account["epsilon"]) == (unit, pytest.approx(epsilon, abs=2e-6))


def test_a_release_without_noise_still_counts(old: Path) -> None:
    ledger = Ledger.read(old / "published" / "ledger" / "client-00000.sqlite")
    assert gaussian(0.0) in ledger.spending()
    ledger.close()


def test_a_new_run_is_held_to_what_that_version_spent_and_adds_to_it(
    capsys, old: Path, tmp_path: Path
) -> None:
    ledgers, settings = (
        old / "shared-ledger",
        ["model.name=linear", "data.clients=3", "budget.rounds=1", "engine.workers=1"],
    )
    settings += [
        "algorithm.noise_multiplier=2.0",
        "budget.epsilon=8.0",
        f"privacy.ledger={ledgers}",
    ]
    words = [
        "run",
        "--quiet",
        "--out",
        str(tmp_path / "run"),
        *(word for setting in settings for word in ("--set", setting)),
    ]
    assert "no budget left" in refused(capsys, *words)
    for ledger in sorted(ledgers.glob("*.sqlite")):
        assert command(capsys, "ledger", "limit", str(ledger), "--epsilon", "8")[0] == 0
    assert command(capsys, *words)[0] == 0
    spent = Ledger.read(ledgers / "client-00000.sqlite").spending()
    assert sum(spent.values()) > 276
    assert 3.998 < proven_accountant("pld").epsilon(spent, 1e-5) <= 8


@pytest.mark.parametrize("name", RUNS)
def test_a_certificate_of_that_version_is_verified_with_its_run(
    capsys, old: Path, name: str
) -> None:
    code, out, err = command(capsys, "verify", str(old / name / "certificate.json"))
    assert code == 0, (out, err)


def test_runs_of_that_version_are_listed_compared_and_reported(
    capsys, old: Path, tmp_path: Path
) -> None:
    _, listed, _ = command(capsys, "runs", str(old), "--json")
    assert {Path(run["run"]).name for run in json.loads(listed)} == set(RUNS)
    compared = dpfl.compare(*(old / name for name in RUNS[:3]))
    assert [row["proven"] for row in compared.to_dict()][:2] == [3.994908, 3.999733]
    page = tmp_path / "report.html"
    assert command(capsys, "report", str(old / "sample"), "--out", str(page))[0] == 0
    assert "3.99" in page.read_text()


def test_a_forged_figure_of_that_version_is_still_found(capsys, old: Path) -> None:
    certificate = json.loads((old / "client" / "certificate.json").read_text())
    forged = old / "client" / "forged.json"
    forged.write_text(json.dumps(certificate).replace("3.99973", "1.99973"))
    assert command(capsys, "verify", str(forged))[0] == 1


def test_a_run_of_that_version_is_not_resumed_and_loses_nothing(capsys, old: Path) -> None:
    folder = old / "sample"
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    sentence = refused(capsys, "run", "--resume", str(folder))
    assert "made by dpfl 0.1" in sentence
    assert "Start a new run" in sentence
    assert {path: path.read_bytes() for path in before} == before


def test_a_run_of_a_newer_version_says_so(old: Path, tmp_path: Path) -> None:
    folder = tmp_path / "newer"
    folder.mkdir()
    text = (old / "sample" / "experiment.toml").read_text()
    (folder / "experiment.toml").write_text(f"format = {FORMAT + 1}\n{text}")
    with pytest.raises(DpflError, match="newer dpfl"):
        RunFolder.open(folder).experiment()
