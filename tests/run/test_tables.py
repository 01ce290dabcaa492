"""A run on a table, from its file to a model that predicts from raw rows."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dpfl
from dpfl.config.experiment import parse
from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.run.records.folder import RunFolder
from dpfl.run.result import Result
from dpfl.views.compare_groups import group_runs
from dpfl.views.figures.curves import draw_calibration, draw_groups
from dpfl.views.run_summary import summary
from tests.conftest import PATIENCE


def write(path: Path, rows: int = 300, sites: str = "ab") -> Path:
    rng = np.random.default_rng(0)
    lines = ["age,sex,hospital,patient,died"]
    for number in range(rows):
        age, sex = int(rng.integers(20, 118)), "fmx"[rng.integers(3)]
        lines.append(
            f"{age},{sex},{sites[number % len(sites)]},p{number // 3},"
            f"{int(rng.random() < age / 118)}"
        )
    path.write_text("\n".join(lines))
    return path


def content(path: Path, **data: Any) -> dict[str, Any]:
    said = {
        "name": str(path),
        "label": "died",
        "task": "binary",
        "site": "hospital",
        "sites": ["a", "b"],
        "person": "patient",
        "test": {"share": 0.2},
        "columns": {"age": {"low": 0, "high": 100}, "sex": {"levels": ["f", "m"], "other": True}},
    }
    return {
        "data": {word: value for word, value in (said | data).items() if value is not None},
        "model": {"name": "linear"},
        "algorithm": {"name": "fedavg-dp", "tau": 1, "noise_multiplier": 1.0},
        "budget": {"rounds": 3},
    }


def run(tmp_path: Path, **data: Any) -> Result:
    return parse(content(write(tmp_path / "stays.csv"), **data)).run(
        out=tmp_path / "run", workers=1
    )


def test_a_raw_row_and_the_model_file_are_enough_without_dpfl(tmp_path: Path) -> None:
    result = run(tmp_path)
    file, table = (
        Path(__file__).parents[2] / "examples" / "predict_without_dpfl.py",
        tmp_path / "stays.csv",
    )
    assert "import dpfl" not in file.read_text()
    command = [
        sys.executable,
        "-I",
        str(file),
        str(result.folder / "model.safetensors"),
        str(table),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    theirs = [[float(chance) for chance in line.split()] for line in done.stdout.splitlines()]
    ours = dpfl.data.table(
        table,
        **{
            word: value
            for word, value in content(table)["data"].items()
            if word not in ("name", "test")
        },
    )
    with torch.no_grad():
        np.testing.assert_allclose(theirs, result.module(ours.train.x).sigmoid(), atol=1e-4)


def test_what_was_clamped_is_in_no_file_of_the_run(tmp_path: Path) -> None:
    result = run(tmp_path)
    (told,) = parse(content(tmp_path / "stays.csv")).federation().private
    assert told.endswith("cells of 'age' beyond the declared bounds: clamped")
    assert not any("clamped" in note for note in result.notes)
    for file in result.folder.rglob("*"):
        assert not file.is_file() or b"beyond the declared" not in file.read_bytes()


def test_the_recorded_experiment_finds_the_same_federation(tmp_path: Path) -> None:
    folder = RunFolder.open(run(tmp_path).folder)
    recorded = parse(folder.experiment()["experiment"])
    assert (
        recorded.federation().sha256 == parse(content(tmp_path / "stays.csv")).federation().sha256
    )
    assert recorded.clients() == 2
    assert recorded.data.partition == "site"


def federation(tmp_path: Path, **data: Any) -> Federation:
    return parse(content(write(tmp_path / "stays.csv"), **data)).federation()


def test_a_table_may_be_dealt_anew(tmp_path: Path) -> None:
    """Persons whole: each has three rows."""
    dealt = federation(tmp_path, partition="iid", clients=3, test=None)
    assert dealt.sizes == (102, 99, 99)
    assert dealt.count_units("person") == (34, 33, 33)
    assert len(federation(tmp_path, site=None, sites=None).sizes) == 10
    skewed = federation(tmp_path, partition="dirichlet", beta=5.0, clients=3, test=None)
    assert skewed.how == "dirichlet(beta=5.0, minimum=20)"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clients": 3}, r"remove data\.clients and data\.public_clients"),
        ({"labels": "x"}, "'labels'; did you mean 'label'?"),
        ({"partition": "iid", "colums": {}}, "The partition 'iid' has no option 'colums'"),
        ({"test_share": 0.2}, "has no option 'test_share'; did you mean 'test'"),
        ({"sites": None}, r"list the sites in data\.sites"),
        (
            {"columns": {"sex": {"levels": ["f", "m"]}}},
            r"stays\.csv, line \d+, column 'sex': a level that is not declared",
        ),
        ({"label": "sex"}, "'sex' is the label and also"),
        ({"sites": ["a", "b", "c"]}, "no rows of the site 'c'"),
    ],
)
def test_what_is_wrong_is_one_sentence_before_anything_is_made(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(DpflError, match=message):
        run(tmp_path, **changes)
    assert not (tmp_path / "run").exists()


def test_a_client_may_lack_a_category_and_positives(tmp_path: Path) -> None:
    path = tmp_path / "stays.csv"
    rows = [
        f"{number},{'f' if number % 2 else 'fm'[number % 3 == 0]},{'ab'[number % 2]},"
        f"p{number},{number % 4 == 0:d}"
        for number in range(80)
    ]
    path.write_text("\n".join(["age,sex,hospital,patient,died", *rows]))
    result = parse(content(path, test=None)).run(out=tmp_path / "run", workers=1)
    assert result.rounds == 3


@pytest.mark.parametrize(("label", "headline"), [("any-visit", "AUC"), ("visits", "deviance")])
def test_both_labels_of_the_study_train_at_its_sites(
    tmp_path: Path, label: str, headline: str
) -> None:
    told = {
        "data": {"name": "randhie", "label": label},
        "model": {"name": "linear"},
        "budget": {"epsilon": 1.0, "rounds": 1},
    }
    result = parse(told | {"algorithm": {"name": "fedavg-dp"}}).run(out=tmp_path / "run", workers=1)
    assert result.headline == headline
    assert sorted(file.stem for file in (tmp_path / "run" / "ledger").glob("*.sqlite")) == list(
        "123456"
    )
    dpfl.certificate.new_key(tmp_path / "key.pem")
    (tmp_path / "run" / "certificate.json").write_text(
        json.dumps(dpfl.certificate.certify(tmp_path / "run", tmp_path / "key.pem"))
    )
    verdict = dpfl.certificate.verify(tmp_path / "run" / "certificate.json")
    assert verdict.findings == []
    told = json.loads((tmp_path / "run" / "certificate.json").read_text())["certificate"][
        "reported"
    ]["measured"]
    assert told == f"{headline} {result.metrics[headline]:.4f} on the test set"
    assert set(result.intervals) == set(result.metrics)
    draw_groups(group_runs([summary(RunFolder(tmp_path / "run"))])).save(
        tmp_path / "run" / "curves.png"
    )
    if label == "any-visit":
        draw_calibration(group_runs([summary(RunFolder(tmp_path / "run"))])).save(
            tmp_path / "run" / "calibration.png"
        )
