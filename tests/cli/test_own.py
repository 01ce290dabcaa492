"""Models and algorithms of one's own, by import path, from the current folder."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command_line import dpfl, refused
from tests.conftest import PATIENCE

OWN = '''
"""DP-SGD of my own: one step a round."""

from torch import nn

import dpfl


def network(width: int = 16) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 10))


def system(rate: float = 0.5, tau: int = 1) -> dpfl.algorithms.Algorithm:
    """tau steps with this rate."""
    if rate > 9:
        raise ValueError("too fast")
    return dpfl.algorithms.fedavg_dp(tau=tau, rate=rate, noise_multiplier=1.0)


def nothing() -> None:
    return None
'''
EXPERIMENT = """
[data]
clients = 4
partition = "iid"
[model]
name = "own_parts:network"
width = 8
[algorithm]
name = "own_parts:system"
rate = 1.0
[budget]
epsilon = 4.0
rounds = 2
[privacy]
accountant = "rdp"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, as the command line has it: nothing of it can be imported yet."""
    (tmp_path / "own_parts.py").write_text(OWN)
    (tmp_path / "experiment.toml").write_text(EXPERIMENT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("own_parts", None)


def test_the_command_finds_own_parts_in_the_current_folder_and_records_them(folder: Path) -> None:
    command = [
        Path(sys.executable).with_name("dpfl"),
        "run",
        "experiment.toml",
        "--workers",
        "2",
        "--quiet",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    made = Path(json.loads(done.stdout)["folder"])
    assert made.name.startswith("own_parts.system-")
    record = (made / "experiment.toml").read_text()
    assert (
        record.count('name = "own_parts:system"') == 3
    )  # in the file, as its parts were asked for, and as they came to be


def test_a_run_of_own_parts_is_listed_and_resumes(capsys, folder: Path) -> None:
    code, first, err = dpfl(capsys, "run", "experiment.toml", "--workers", "1", "--quiet", "--json")
    assert code == 0, err
    assert json.loads(dpfl(capsys, "runs", "--json")[1])[0]["algorithm"] == "own_parts:system"
    run = json.loads(first)["folder"]
    again = dpfl(capsys, "run", "--resume", run, "--workers", "1", "--quiet", "--json")[1]
    assert json.loads(again)["model_sha256"] == json.loads(first)["model_sha256"]


def test_an_own_algorithm_is_shown(capsys, folder: Path) -> None:
    code, out, err = dpfl(capsys, "algorithms", "own_parts:system", "--json")
    assert code == 0, err
    shown = json.loads(out)
    assert shown["paper"] == "DP-SGD of my own"
    assert set(shown["options"]) == {"rate", "tau"}
    assert shown["proven"] == {
        "sound": "epsilon for one sample: noise in every step, at the client"
    }


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("algorithm.name=own_parts:sistem", "Cannot import the algorithm 'own_parts:sistem'"),
        ("algorithm.name=elsewhere:system", "installed or in the current folder"),
        ("algorithm.ratio=3", "unexpected keyword argument 'ratio'"),
        ("algorithm.rate=10", "too fast"),
        ("algorithm.name=own_parts:nothing", "failed with the options {'rate': 1.0}"),
        ("model.name=own_parts:none", "Cannot import the model"),
    ],
)
def test_what_is_wrong_with_own_parts_is_one_sentence(
    capsys, folder: Path, setting: str, says: str
) -> None:
    assert says in refused(capsys, "run", "experiment.toml", "--set", setting, "--quiet")
    assert not (folder / "runs").exists()


def test_a_factory_must_return_an_algorithm(capsys, folder: Path) -> None:
    own = EXPERIMENT.replace("own_parts:system", "own_parts:nothing").replace("rate = 1.0\n", "")
    (folder / "nothing.toml").write_text(own)
    sentence = refused(capsys, "run", "nothing.toml", "--quiet")
    assert "returned a NoneType; it must return a dpfl.algorithms.Algorithm" in sentence
