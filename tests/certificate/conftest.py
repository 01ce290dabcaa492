"""One small run of each kind, and a key; a test that changes a run gets a copy of its own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import dpfl
from dpfl.certificate import certify, new_key
from dpfl.run.flat_options import group_flat_options
from tests.certificate.forgeries import write_certificate
from tests.certificate.node_cases import Case, serve
from tests.conftest import MODEL, small_crowd, small_federation, unequal_federation

RUNS = {
    "samples": (
        small_federation,
        dpfl.algorithms.fedavg_dp(noise_multiplier=1.0),
        {"entropy": "system"},
    ),
    "keyed": (small_federation, dpfl.algorithms.fedavg_dp(noise_multiplier=1.0), {}),
    "clients": (
        small_crowd,
        dpfl.algorithms.dp_fedavg(noise_multiplier=2.0, tau=1),
        {"entropy": "system"},
    ),
    "published": (
        small_federation,
        dpfl.algorithms.hw_dpfl(variant="published", tau=1, samples=250),
        {"entropy": "system"},
    ),
    "unequal": (
        unequal_federation,
        dpfl.algorithms.hw_dpfl(variant="published", tau=1),
        {"entropy": "system"},
    ),
    "plain": (small_federation, dpfl.algorithms.fedavg(tau=1), {}),
}


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    root = tmp_path_factory.mktemp("runs")

    def made(name: str) -> Path:
        federation, algorithm, options = RUNS[name]
        if not (root / name).exists():
            groups, _ = group_flat_options({"out": root / name, **options})
            dpfl.train(MODEL, federation(), algorithm, dpfl.Budget(rounds=2), **groups)
        return root / name

    return made


@pytest.fixture
def run_of(originals: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: Path(shutil.copytree(originals(name), tmp_path / name))


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "key.pem"
    new_key(path)
    return path


@pytest.fixture
def certified(run_of: Callable[[str], Path], key: Path) -> Callable[..., Path]:
    """The certificate of a run, in its folder."""

    def make(name: str = "samples") -> Path:
        folder = run_of(name)
        (folder / "audit.json").write_text(json.dumps({"measured": 0.5, "verdict": "holds"}))
        (folder / "certificate.json").write_text(json.dumps(certify(folder, key), indent=2))
        return folder / "certificate.json"

    return make


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory, key: Path) -> Path:
    root = tmp_path_factory.mktemp("federation")
    serve(root)
    write_certificate(root / "run", key)
    return root


@pytest.fixture(params=[False, True], ids=["with the run", "without the run"])
def case(original: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Case:
    root = Path(shutil.copytree(original, tmp_path / "copy"))
    shutil.copy(root / "run" / "certificate.json", root / "alone.json")
    return Case(root, request.param)
