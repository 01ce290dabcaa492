"""A whole federation of real processes: the same events and the same model as in one program."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import torch
from safetensors.torch import load_file

from dpfl.experiment import parse
from dpfl.flower.server import Listed, carried
from dpfl.flower.up import laid_out, refuse_ended, running
from dpfl.keys import load_private
from dpfl.privacy import Ledger
from dpfl.run.nodes import MOST_ANSWER, Terms

BASE = {
    "seed": 5,
    "data": {"name": "mnist-sample", "partition": "iid", "clients": 3},
    "model": {"name": "mlp", "hidden": 8},
    "algorithm": {"name": "fedavg-dp", "tau": 2, "sampling_rate": 0.01},
    "budget": {"epsilon": 4.0, "delta": 1e-5, "rounds": 2},
    "privacy": {"entropy": "keyed", "accountant": "rdp"},
}


def spent(folder: Path) -> list[dict]:
    found = []
    for path in sorted(folder.rglob("*.sqlite")):
        if path.parent.name in ("ledger", "ledgers"):
            with closing(Ledger.read(path)) as ledger:
                found.append(dict(ledger.spent()))
    return found


def test_the_same_run_over_real_nodes(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("DPFL_TEST_KEYED_SEED", "5")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    experiment, folder = parse(BASE), tmp_path / "up"
    limits = {"epsilon": 8.0, "delta": 1e-5, "accountant": "rdp"}
    allow, tell = {"systems": ["fedavg-dp"], "models": ["mlp"]}, {"size": "exact", "entropy": "keyed", "secure": False}
    address, lines = laid_out(folder, experiment.dealt(3), limits, allow, tell)
    nodes = {name: Listed.parse(name, line) for name, line in lines.items()}
    with running(folder, lines) as processes:
        local = experiment.run(tmp_path / "local", workers=1)
        refuse_ended(folder, processes, 0.0)
        terms = Terms(load_private(folder / "server" / "owner.pem"), {name: node.letters for name, node in nodes.items()})
        with carried(folder / "server", address, nodes, MOST_ANSWER) as post:
            remote = experiment.serve(post, terms, tmp_path / "remote")
    assert all(process.returncode == 0 for process in processes.values())
    assert remote.rounds == local.rounds == 2
    assert not remote.lost
    assert spent(folder / "nodes") == spent(tmp_path / "local") == spent(tmp_path / "remote")
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("local", "remote"))
    assert all(torch.allclose(one[name], other[name], atol=1e-5) for name in one)
    secrets = [path for path in folder.rglob("*") if path.suffix in (".pem", ".key", ".secret") and path.is_file()]
    assert len(secrets) >= 8
    assert all(os.stat(path).st_mode & 0o077 == 0 for path in secrets)
