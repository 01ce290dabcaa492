import importlib.metadata
import json
import tomllib
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
import torch
from safetensors.torch import load_file

import dpfl
from dpfl.algorithms import dp_fedavg, fedavg_dp
from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.run.metrics import COLUMNS, RoundRow
from dpfl.run.records.digests import vector_sha256
from dpfl.run.records.folder import RunFolder, write_atomically
from tests.conftest import MODEL, small_federation
from tests.run.disks import fail_at

SOUND = fedavg_dp(tau=2, sampling_rate=0.1, noise_multiplier=1.0, rate=0.5)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dpfl.Result:
    return dpfl.train(
        MODEL,
        small_federation(),
        SOUND,
        dpfl.Budget(epsilon=50.0, rounds=4),
        privacy=dpfl.Privacy(accountant="rdp"),
        execution=dpfl.Execution(
            seed=5,
            out=tmp_path_factory.mktemp("runs") / "run",
            experiment={"data": {"name": "small", "none": None}},
        ),
    )


def test_a_run_s_folder_holds_everything_in_open_formats(result: dpfl.Result) -> None:
    names = {path.name for path in result.folder.iterdir()}
    wanted = {
        "experiment.toml",
        "metrics.sqlite",
        "checkpoint.safetensors",
        "model.safetensors",
        "statement.json",
        "result.json",
    }
    assert wanted | {"ledger"} <= names
    assert not [name for name in names if name.endswith((".pkl", ".pt", ".new"))]
    assert len(list((result.folder / "ledger").glob("client-*.sqlite"))) == 4


def test_the_experiment_names_versions_hashes_and_what_was_resolved(
    result: dpfl.Result, federation: Federation
) -> None:
    with (result.folder / "experiment.toml").open("rb") as file:
        record = tomllib.load(file)
    assert record["run"]["id"] == result.run
    assert record["experiment"] == {"data": {"name": "small"}}
    hashes = {
        "federation": federation.sha256,
        "train": federation.train.sha256,
        "test": federation.test.sha256,
    }
    assert record["hashes"].items() >= hashes.items()
    assert len(record["hashes"]["model"]) == 64
    for name in ("dpfl", "torch", "numpy", "dp-accounting"):
        assert record["versions"][name] == importlib.metadata.version(name)
    resolved = record["resolved"]
    assert resolved["seed"] == 5
    assert resolved["accountant"] == "rdp"
    assert resolved["budget"] == {"part": "budget", "epsilon": 50.0, "delta": 1e-5, "rounds": 4}
    assert resolved["algorithm"]["samples"]["noise"] == {
        "part": "noise.gaussian",
        "noise_multiplier": 1.0,
    }
    assert resolved["algorithm"]["samples"]["sampling"] == {"part": "sampling.poisson", "rate": 0.1}


def test_the_metrics_have_a_row_a_round_and_end_with_the_final_figures(result: dpfl.Result) -> None:
    metrics = RunFolder.open(result.folder).metrics()
    rows = metrics.rows()
    metrics.close()
    assert rows == list(result.history)
    assert [row.round for row in rows] == [1, 2, 3, 4]
    assert [row.iterations for row in rows] == [2, 4, 6, 8]
    assert rows[-1].accuracy == result.accuracy
    assert rows[-1].epsilon == result.privacy.proven
    shown = [row.epsilon for row in rows]
    assert shown == sorted(shown)


def test_the_metrics_are_exported_to_parquet_that_others_can_read(
    result: dpfl.Result, tmp_path: Path
) -> None:
    metrics = RunFolder.open(result.folder).metrics()
    metrics.export(tmp_path / "rounds.parquet")
    metrics.close()
    table = parquet.read_table(tmp_path / "rounds.parquet")
    assert tuple(table.column_names) == COLUMNS
    assert [RoundRow(**row) for row in table.to_pylist()] == list(result.history)


def test_the_weights_load_into_a_fresh_module_and_give_the_reported_accuracy(
    result: dpfl.Result, federation: Federation
) -> None:
    module = MODEL.build(federation.shape, federation.classes, seed=99)
    module.load_state_dict(load_file(result.folder / "model.safetensors"))
    module.eval()
    with torch.no_grad():
        right = module(federation.test.x).argmax(1) == federation.test.y
    assert float(right.float().mean()) == pytest.approx(result.accuracy, abs=1e-6)
    weights = torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
    assert vector_sha256(weights) == result.model_sha256


def test_the_statement_on_disk_is_the_statement_of_the_result(result: dpfl.Result) -> None:
    written = json.loads((result.folder / "statement.json").read_text())
    assert written == json.loads(result.privacy.to_json())
    assert written["unit"] == "sample"
    assert written["proven"] == pytest.approx(result.privacy.proven, abs=1e-6)
    whole = json.loads((result.folder / "result.json").read_text())
    assert whole["privacy"] == written
    assert whole["model_sha256"] == result.model_sha256
    assert whole["stopped_by"] == "rounds"


def test_a_new_run_is_not_written_over_an_old_one(result: dpfl.Result) -> None:
    before = {path: path.read_bytes() for path in result.folder.rglob("*") if path.is_file()}
    with pytest.raises(DpflError, match="holds a run already"):
        RunFolder.create(result.folder)
    with pytest.raises(DpflError, match="--resume"):
        dpfl.train(
            MODEL,
            small_federation(),
            SOUND,
            dpfl.Budget(rounds=1),
            execution=dpfl.Execution(out=result.folder),
        )
    assert {path: path.read_bytes() for path in before} == before


def test_there_is_no_run_in_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(DpflError, match="no run"):
        RunFolder.open(tmp_path)


def test_a_folder_that_cannot_be_made_is_answered_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DpflError, match="cannot be written"):
        RunFolder.create(tmp_path / "file" / "run")


@pytest.mark.parametrize("step", ["flush", "rename"])
def test_a_write_that_fails_leaves_the_old_file_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")
    with monkeypatch.context() as patched:
        fail_at(step, patched)
        with pytest.raises(OSError, match="No space"):
            write_atomically(path, b"new, and longer")
    assert path.read_bytes() == b"old"
    write_atomically(path, b"newer")
    assert path.read_bytes() == b"newer"


def test_a_run_without_a_folder_of_its_own_gets_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crowd: Federation
) -> None:
    monkeypatch.chdir(tmp_path)
    algorithm = dp_fedavg(cohort=5, noise_multiplier=1.0, tau=1)
    folders = {
        dpfl.train(
            MODEL, crowd, algorithm, dpfl.Budget(rounds=1), privacy=dpfl.Privacy(accountant="rdp")
        ).folder.resolve()
        for _ in range(2)
    }
    assert len(folders) == 2
    assert all(
        folder.parent == tmp_path / "runs" and folder.name.startswith("dp-fedavg-")
        for folder in folders
    )
