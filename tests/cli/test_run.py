"""`dpfl run`: its answer, its JSON, and one sentence with exit code 2 for what is wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from dpfl.privacy import Ledger
from tests.cli.command_line import SMALL, dpfl, refused


def test_run_ends_with_one_json_line(capsys, tmp_path):
    out_dir = tmp_path / "run"
    settings = ["--set", "algorithm.tau=3", "--set", "budget.rounds=5", "--out", out_dir, "--json"]
    code, out, _ = dpfl(capsys, "run", *SMALL, *settings)
    assert code == 0
    result = json.loads(out.strip().splitlines()[-1])
    assert {
        "run",
        "rounds",
        "iterations",
        "accuracy",
        "loss",
        "stopped_by",
        "model_sha256",
        "privacy",
    } <= result.keys()
    privacy = result["privacy"]
    assert {
        "unit",
        "neighbours",
        "delta",
        "accountant",
        "adversary",
        "proven",
        "claimed",
        "per_client",
    } <= privacy.keys()
    assert result["rounds"] == 5
    assert result["iterations"] == 15
    assert result["stopped_by"] == "rounds"
    assert len(privacy["per_client"]) == 4
    for client in range(4):
        ledger = Ledger.read(out_dir / "ledger" / f"client-{client:05d}.sqlite")
        assert sum(ledger.spending().values()) == 15
        assert ledger.epsilon(1e-5) == pytest.approx(
            privacy["per_client"][f"client-{client:05d}"], abs=1e-6
        )


def test_a_run_shows_its_statement_to_people(capsys, tmp_path):
    code, out, _ = dpfl(
        capsys, "run", *SMALL, "--set", "budget.rounds=2", "--out", tmp_path / "run"
    )
    assert code == 0
    for word in (
        "proven",
        "claimed",
        "one sample",
        "add/remove one",
        "delta",
        "pld",
        "adversary",
        str(tmp_path)[:20],
    ):
        assert word in out


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["budget.epsilonn=3"], ["budget.epsilonn", "did you mean 'epsilon'"]),
        (["bugdet.epsilon=3"], ["bugdet", "did you mean 'budget'"]),
        (["algorithm.name=fedavg-pd"], ["fedavg-pd", "did you mean 'fedavg-dp'"]),
        (["algorithm.ratee=3"], ["ratee", "did you mean 'rate'"]),
        (["algorithm.name=fedavg-dp", "algorithm.tauu=3"], ["tauu", "did you mean 'tau'"]),
        (["model.name=cn"], ["cn", "cnn"]),
        (["data.name=mnits"], ["mnits", "mnist"]),
        (["data.partition=dirichlett"], ["dirichlet"]),
        (["budget.epsilon=0"], ["epsilon must be a positive number"]),
        (["budget.epsilon=-1"], ["epsilon must be a positive number"]),
        (["budget.delta=2"], ["delta must lie between 0 and 1"]),
        (["budget.rounds=0"], ["budget.rounds must be above 0"]),
        (["budget.rounds=many"], ["budget.rounds", "integer"]),
        (["algorithm.clip=0"], ["clip norm must be a positive number"]),
        (["algorithm.sampling_rate=1.5"], ["sampling rate"]),
        (["algorithm.name=fedavg-dp", "algorithm.tau=0"], ["tau must be from 1"]),
        (["algorithm.variant=sonud"], ["sonud", "did you mean 'sound'"]),
        (["algorithm.mu=rough"], ["mu is released", "'rough'"]),
        (["algorithm.mu=public"], ["public_clients"]),
        (["algorithm.name=dp-sgd-wav", "algorithm.haar_weights=papers"], ["papers", "paper"]),
        (["algorithm.name=dp-sgd-wav", "algorithm.haar_weights=matched"], ["energy of each band"]),
        (["algorithm.name=hw-dpfl", "algorithm.batch_size=500"], ["500 samples", "batch_size"]),
        (["algorithm.name=dyn-dp-sgd", "algorithm.phases=0"], ["at least 1 phase"]),
        (["algorithm.name=dp-ftrl", "algorithm.cohort=11"], ["11", "10"]),
        (["algorithm.name=dp-ftrl", "algorithm.cohort=5", "algorithm.bands=3"], ["every 2 rounds"]),
        (["algorithm.name=nbafl", "algorithm.clip=-1"], ["clip"]),
        (["algorithm.name=pe-dpfl", "algorithm.share=-1"], ["share"]),
        (["algorithm.name=custom", "algorithm.steps=alli"], ["alli", "did you mean 'ali'"]),
        (["algorithm.rate=0"], ["learning rate must be above 0"]),
        (["algorithm.noise_multiplier=0"], ["noise multiplier must be a positive number"]),
        (["privacy.accountant=gdp-clt"], ["approximation", "pld"]),
        (["privacy.accountant=magic"], ["magic", "pld"]),
        (["privacy.entropy=dice"], ["keyed", "system"]),
        (["engine.name=cloud"], ["local"]),
        (["data.clients=0"], ["client"]),
        (["data.clients=9000"], ["client"]),
        (["algorithm"], ["section.key=value"]),
        (["model.name=resnet-18", "model.norm=batch"], ["BatchNorm", "GroupNorm"]),
        (["algorithm.name=dp-fedavg", "algorithm.clipping=public-median"], ["public_clients"]),
        (["algorithm.name=dp-fedavg", "algorithm.cohort=50"], ["50", "10"]),
    ],
)
def test_bad_settings_get_a_sentence(capsys, tmp_path, settings, words):
    flags = [word for setting in settings for word in ("--set", setting)]
    sentence = refused(
        capsys,
        "run",
        "--set",
        "budget.rounds=3",
        *flags,
        "--workers",
        "1",
        "--out",
        tmp_path / "run",
    )
    for word in words:
        assert word in sentence


def test_options_of_the_wrong_kind_get_a_sentence(capsys, tmp_path):
    for setting in (
        "algorithm.tau=three",
        "algorithm.rate=fast",
        "data.beta=skewed",
        "model.activation=3",
    ):
        refused(capsys, "run", "--set", setting, "--workers", "1", "--out", tmp_path / "run")


def test_a_delta_that_gives_a_record_away_is_warned_of(capsys, tmp_path):
    code, out, _ = dpfl(
        capsys,
        "run",
        *SMALL,
        "--set",
        "budget.delta=0.01",
        "--set",
        "budget.rounds=1",
        "--out",
        tmp_path / "r",
        "--json",
    )
    assert code == 0
    assert any("delta 0.01 is not below" in note for note in json.loads(out)["notes"])


def test_a_warning_stays_with_quiet_and_in_the_statement(capsys, tmp_path):
    settings = ("--set", "budget.delta=0.01", "--set", "budget.rounds=1")
    code, out, err = dpfl(capsys, "run", *SMALL, *settings, "--out", tmp_path / "r", "--quiet")
    assert code == 0
    assert "delta 0.01 is not below" in err
    assert "delta 0.01 is not below" in out
    assert (
        "delta 0.01 is not below"
        in json.loads((tmp_path / "r" / "statement.json").read_text())["warnings"][0]
    )


def test_a_missing_or_broken_file_gets_a_sentence(capsys, tmp_path, monkeypatch):
    monkeypatch.delenv("DPFL_DATA", raising=False)
    assert "dpfl data get mnist" in refused(
        capsys, "run", "--set", "data.name=mnist", "--data-dir", tmp_path
    )
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"not an image")
    for name in ("train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"):
        (tmp_path / name).write_bytes(b"neither")
    assert "train-images" in refused(
        capsys, "run", "--set", "data.name=mnist", "--data-dir", tmp_path
    )
    assert "no experiment file" in refused(capsys, "run", tmp_path / "missing.toml")
    (tmp_path / "bad.toml").write_text("[data\nname=")
    assert "not valid TOML" in refused(capsys, "run", tmp_path / "bad.toml")
    assert "no run in" in refused(capsys, "run", "--resume", tmp_path)
    assert "no ledger" in refused(capsys, "ledger", "show", tmp_path / "nothing.sqlite")


def test_a_client_with_one_image_or_none_gets_a_sentence(capsys, tmp_path):
    x, y = np.random.default_rng(0).random((40, 1, 8, 8), dtype=np.float32), np.arange(40) % 10
    np.savez(tmp_path / "own.npz", x=x, y=y, x_test=x, y_test=y)
    for lists in ([[0], list(range(1, 40))], [[], list(range(40))]):
        (tmp_path / "who.json").write_text(json.dumps(lists))
        flags = [
            f"data.name={tmp_path / 'own.npz'}",
            "data.partition=mapping",
            f"data.lists={tmp_path / 'who.json'}",
        ]
        settings = [word for flag in flags for word in ("--set", flag)]
        sentence = refused(
            capsys,
            "run",
            *settings,
            "--set",
            "data.clients=2",
            "--set",
            "model.name=mlp",
            "--out",
            tmp_path / "r",
        )
        assert "client 0" in sentence


def test_a_folder_that_cannot_be_written_gets_a_sentence(capsys, tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert "cannot be written" in refused(capsys, "run", *SMALL, "--out", tmp_path / "file" / "run")
    if os.geteuid():
        (tmp_path / "closed").mkdir(mode=0o500)
        assert "cannot be written" in refused(
            capsys, "run", *SMALL, "--out", tmp_path / "closed" / "run"
        )


def test_a_run_is_never_overwritten_nor_resumed_differently(capsys, tmp_path):
    dpfl(capsys, "run", *SMALL, "--set", "budget.rounds=2", "--out", tmp_path / "run")
    assert "holds a run already" in refused(capsys, "run", *SMALL, "--out", tmp_path / "run")
    assert "remove the file" in refused(
        capsys, "run", "--resume", tmp_path / "run", "--set", "budget.rounds=3"
    )


def test_a_corrupt_checkpoint_or_ledger_gets_a_sentence(capsys, tmp_path):
    dpfl(capsys, "run", *SMALL, "--set", "budget.rounds=2", "--out", tmp_path / "run")
    checkpoint = tmp_path / "run" / "checkpoint.safetensors"
    good = checkpoint.read_bytes()
    checkpoint.write_bytes(good[:-100])
    assert "checkpoint" in refused(
        capsys, "run", "--resume", tmp_path / "run", "--workers", "1", "--quiet"
    )
    checkpoint.write_bytes(good)
    ledger = tmp_path / "run" / "ledger" / "client-00001.sqlite"
    for extra in ("-wal", "-shm"):
        Path(str(ledger) + extra).unlink(missing_ok=True)
    ledger.write_bytes(os.urandom(4096))
    assert "client-00001.sqlite is damaged" in refused(
        capsys, "run", "--resume", tmp_path / "run", "--workers", "1", "--quiet"
    )


def test_a_finished_run_can_be_resumed_and_stays_what_it_is(capsys, tmp_path):
    _, first, _ = dpfl(
        capsys, "run", *SMALL, "--set", "budget.rounds=3", "--out", tmp_path / "run", "--json"
    )
    code, again, _ = dpfl(
        capsys, "run", "--resume", tmp_path / "run", "--workers", "1", "--quiet", "--json"
    )
    assert code == 0
    for key in ("model_sha256", "rounds", "iterations", "privacy"):
        assert json.loads(first)[key] == json.loads(again)[key]


def test_a_second_run_on_the_same_ledger_gets_only_what_is_left(capsys, tmp_path):
    shared = ["--set", f"privacy.ledger={tmp_path / 'ledger'}", "--set", "budget.epsilon=3"]
    _, out, _ = dpfl(
        capsys,
        "run",
        *SMALL,
        *shared,
        "--set",
        "budget.rounds=8",
        "--out",
        tmp_path / "a",
        "--json",
    )
    first = json.loads(out)
    assert first["stopped_by"] == "rounds"
    _, out, _ = dpfl(
        capsys,
        "run",
        *SMALL,
        *shared,
        "--set",
        "budget.rounds=2000",
        "--out",
        tmp_path / "b",
        "--json",
    )
    second = json.loads(out)
    assert second["stopped_by"] == "epsilon"
    assert first["privacy"]["proven"] < second["privacy"]["proven"] <= 3
    assert "no budget left" in refused(
        capsys, "run", *SMALL, *shared, "--set", "budget.rounds=1", "--out", tmp_path / "c"
    )


@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
def test_an_interrupt_is_answered_with_advice_that_works(capsys, tmp_path, monkeypatch, quiet):
    """Before the run has a folder, and after."""
    words = [
        "run",
        *(word for word in SMALL if word != "--quiet"),
        *quiet,
        "--set",
        "budget.rounds=1",
    ]
    monkeypatch.chdir(tmp_path)

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    for moment in (
        "dpfl.config.experiment.Experiment.federation",
        "dpfl.run.records.folder.RunFolder.save_checkpoint",
    ):
        with monkeypatch.context() as early:
            early.setattr(moment, stopped)
            code, _, err = dpfl(capsys, *words, "--out", "early")
        assert code == 130
        assert err.endswith(
            "dpfl: stopped before anything was released. Start it again with the same command.\n"
        )
    assert dpfl(capsys, *words, "--out", "early")[0] == 0
    with monkeypatch.context() as late:
        late.setattr("dpfl.run.train.run_rounds", stopped)
        code, _, err = dpfl(capsys, *words)
    assert code == 130
    advice = err.splitlines()[-1].removeprefix("dpfl: stopped. Resume it with: dpfl ")
    assert advice.startswith("run --resume runs/fedavg-dp-")
    assert dpfl(capsys, *advice.split(), "--workers", "1", "--quiet")[0] == 0
