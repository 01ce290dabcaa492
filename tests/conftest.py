"""Small federations of the embedded images, so that a run takes a second."""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from _pytest.assertion import assertstate_key, rewrite
from hypothesis import settings

import dpfl
from dpfl.data import IID, DataSource, Dirichlet, Federation
from dpfl.privacy import Ledger
from dpfl.run.flat_options import group_flat_options
from dpfl.run.metrics import RoundRow
from dpfl.run.recorder import SilentProgress
from tests.waits import PATIENCE, Clock, Ticking, wait_until  # noqa: F401

# The same examples in every run: what passes here passes everywhere. HYPOTHESIS_PROFILE=default
# looks for new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


# Ledgers wait for the disk at every debit, as they must; where memory holds the tests' files,
# nobody waits.
MEMORY = Path("/dev/shm")
if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 2**31:
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

# Tests run in a process a core: a second thread in each would wait for the other's, in a loop.
torch.set_num_threads(1)

MODEL = dpfl.models.mlp(hidden=16)


def pytest_configure(config: pytest.Config) -> None:
    """Rewrites the assertions of all tests once, before each worker would."""
    if sys.dont_write_bytecode or not getattr(config.option, "numprocesses", None):
        return
    tests = Path(__file__).parent
    for file in (*tests.rglob("test_*.py"), *tests.rglob("conftest.py")):
        kept = rewrite.get_cache_dir(file) / f"{file.stem}{rewrite.PYC_TAIL}"
        if not kept.exists() or kept.stat().st_mtime < file.stat().st_mtime:
            kept.parent.mkdir(exist_ok=True)
            about, code = rewrite._rewrite_test(file, config)
            rewrite._write_pyc(config.stash[assertstate_key], code, about, kept)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Deals tests to workers by file, so that what a file makes once is made in one of them."""
    from xdist.scheduler import LoadGroupScheduling

    class Files(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            group = super()._split_scope(nodeid)
            return nodeid.partition("::")[0] if group == nodeid else group

    config.option.loadscopereorder = False
    return Files(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Groups come first where there are workers: they wait for processes for longest."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Modules and tests stay until the end: collections of garbage need not look through them, nor
    through what there is of them so far.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@cache
def small_source() -> DataSource:
    whole = dpfl.data.sample()
    return dpfl.data.tensors(
        whole.train.x[:1000],
        whole.train.y[:1000],
        whole.test.x[:400],
        whole.test.y[:400],
        name="small",
    )


@cache
def small_federation() -> Federation:
    """Four clients with 250 images each."""
    return small_source().split(clients=4, how=IID(), seed=0)


@cache
def unequal_federation() -> Federation:
    """Three clients of unequal sizes."""
    return small_source().split(clients=3, how=Dirichlet(0.5), seed=0)


@cache
def small_crowd() -> Federation:
    """Twenty clients with some 40 images each, and three that are public."""
    return small_source().split(clients=20, how=IID(), seed=0, public_clients=3)


@pytest.fixture
def federation() -> Federation:
    return small_federation()


@pytest.fixture
def crowd() -> Federation:
    return small_crowd()


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., dpfl.Result]:
    """dpfl.train on the small model, into this test's own folder. Options may be flat."""

    def run(
        federation: Federation,
        algorithm: dpfl.algorithms.Algorithm,
        /,
        out: str = "run",
        **options: Any,
    ) -> dpfl.Result:
        budget = {
            name: options.pop(name)
            for name in ("epsilon", "delta", "rounds", "bytes", "seconds")
            if name in options
        }
        model = options.pop("model", MODEL)
        groups, _ = group_flat_options({"out": tmp_path / out, **options})
        return dpfl.train(model, federation, algorithm, dpfl.Budget(**budget), **groups)

    return run


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Whoever connects to anything beyond this machine is found out."""
    tried: list[Any] = []
    connect = socket.socket.connect

    def refuse(self: socket.socket, address: Any) -> None:
        if not isinstance(address, tuple) or address[0] in ("127.0.0.1", "::1", "localhost"):
            return connect(self, address)
        tried.append(address)
        raise OSError("no network here")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    yield tried
    assert tried == []


@cache
def example(name: str) -> ModuleType:
    """A file of examples/, imported."""
    file = Path(__file__).parents[1] / "examples" / f"{name}.py"
    found = importlib.util.spec_from_file_location(name, file)
    assert found is not None
    assert found.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(
        found
    )  # dataclasses look for their module
    found.loader.exec_module(module)
    return module


class StopsAfter(SilentProgress):
    """Breaks a run off once this round is kept."""

    def __init__(self, round: int) -> None:
        self.round = round

    def tell(self, row: RoundRow) -> None:
        if row.round == self.round:
            raise KeyboardInterrupt


def ledger_of(result: dpfl.Result, name: str) -> dict[Any, int]:
    ledger = Ledger.read(result.folder / "ledger" / f"{name}.sqlite")
    try:
        return ledger.spending()
    finally:
        ledger.close()
