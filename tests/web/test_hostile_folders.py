"""Folders that somebody else wrote: none spoils the list, is read beyond the folder of runs, or
ends what is no run.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dpfl.run.records.folder import RunFolder
from dpfl.web.app import make_app
from dpfl.web.auth import AccessKeys
from dpfl.web.run_index import RunIndex
from dpfl.web.run_views import run_page

pytestmark = pytest.mark.xdist_group("web")


def _record(text: str) -> Callable[[Path], object]:
    return lambda run: (run / "experiment.toml").write_text(f'[run]\nid = "a"\n{text}\n[hashes]\n')


def _result(run: Path) -> None:
    folder = RunFolder(run)
    folder.write_json("result.json", folder.json("result.json") | {"metrics": [1]})


ODD: dict[str, Callable[[Path], object]] = {
    "algorithm": _record('[resolved]\nalgorithm = "x"'),
    "budget": _record("[resolved]\nbudget = [1]"),
    "date": _record("started = 2020-01-01\n[resolved]"),
    "experiment": _record("[resolved]\n[experiment]\ndata = 1"),
    "metrics": _result,
    "bytes": lambda run: os.rename(run, os.fsencode(run) + b"\xff"),
}


@pytest.mark.parametrize("what", ODD)
def test_one_odd_run_leaves_the_list_of_the_others(runs: Path, tmp_path: Path, what: str) -> None:
    for name in ("good", "odd"):
        shutil.copytree(runs / "plain", tmp_path / name)
    ODD[what](tmp_path / "odd")
    found = {line["name"]: line["state"] for line in RunIndex(tmp_path).lines()}
    assert found["good"] == "finished"
    json.dumps(found, ensure_ascii=False).encode()


@pytest.mark.parametrize("what", ["algorithm", "budget", "metrics"])
def test_an_odd_run_is_a_sentence(runs: Path, tmp_path: Path, what: str) -> None:
    from starlette.testclient import TestClient

    shutil.copytree(runs / "plain", tmp_path / "odd")
    ODD[what](tmp_path / "odd")
    with TestClient(
        make_app(tmp_path, AccessKeys(frozenset())), raise_server_exceptions=False
    ) as client:
        for path in ("/api/run", "/api/compare", "/report"):
            answer = client.get(path, params={"name": "odd"})
            assert answer.status_code in (200, 400), path
            assert answer.status_code == 200 or answer.json()["error"].endswith(".")


def test_no_node_is_named_out_of_its_run(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "plain", tmp_path / "runs" / "x")
    (tmp_path / "runs" / "x" / "nodes").mkdir()
    (tmp_path / "secret.json").write_text('{"statement": {"proven": 7.25}}')
    RunFolder(tmp_path / "runs" / "x").write_json("nodes.json", {"../../../secret": {"size": 1}})
    (node,) = run_page(RunFolder(tmp_path / "runs" / "x"), "x")["nodes"]
    assert node["proven"] is None
