"""`dpfl runs` and `dpfl compare`: what they list, draw and print as JSON."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.command_line import SMALL, dpfl


def test_runs_and_compare_list_what_there_is(capsys, tmp_path):
    for name, seed in (("a", 0), ("b", 1)):
        dpfl(
            capsys,
            "run",
            *SMALL,
            "--set",
            "budget.rounds=2",
            "--set",
            f"seed={seed}",
            "--out",
            tmp_path / name,
        )
    _, out, _ = dpfl(capsys, "runs", tmp_path, "--json")
    assert [Path(row["run"]).name for row in json.loads(out)] == ["a", "b"]
    code, out, _ = dpfl(
        capsys, "compare", tmp_path / "a", tmp_path / "b", "--png", tmp_path / "curves.png"
    )
    assert code == 0
    assert "fedavg-dp" in out
    assert "±" in out
    (group,) = json.loads(dpfl(capsys, "compare", tmp_path / "b", tmp_path / "a", "--json")[1])
    assert group["seeds"] == [run["seed"] for run in group["runs"]] == [0, 1]
    assert group["accuracy"]["low"] < group["accuracy"]["mean"] < group["accuracy"]["high"]
    assert group["settings"]["algorithm"]["samples"]["noise"]["noise_multiplier"] == 1.0
    assert (tmp_path / "curves.png").read_bytes()[:4] == b"\x89PNG"
    _, out, _ = dpfl(capsys, "ledger", "show", tmp_path / "a", "--json")
    rows = json.loads(out)
    assert len(rows) == 4
    assert all(
        row["neighbours"] == "add/remove one" and row["epsilon"] <= row["allowed"] for row in rows
    )
