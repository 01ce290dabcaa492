"""`dpfl reproduce`: a list, a table at a small scale, the same again at once, and errors that say
what to do.
"""

from __future__ import annotations

import json

from tests.cli.command_line import dpfl, refused

SMALL = [
    "--set",
    "data.name=mnist-sample",
    "--set",
    "data.minimum=20",
    "--set",
    "budget.rounds=2",
    "--set",
    "model.name=mlp",
    "--cells",
    "MNIST",
    "--cells",
    "eps 1.55",
    "--workers",
    "1",
]


def test_without_a_name_the_tables_are_listed(capsys):
    code, out, _ = dpfl(capsys, "reproduce")
    assert code == 0
    assert "ali-3" in out
    _, out, _ = dpfl(capsys, "reproduce", "--json")
    assert {"ali-2", "ali-3", "ali-4", "ali-5"} <= {table["name"] for table in json.loads(out)}


def test_a_table_is_run_shown_and_kept(capsys, tmp_path):
    command = ["reproduce", "ali-2", *SMALL, "--cells", "tau = 1", "--out", tmp_path]
    code, out, error = dpfl(capsys, *command)
    assert code == 0
    assert "85.65" in out
    assert "not the paper's size" in " ".join(out.split())
    assert "1/1" in error
    folder = tmp_path / "ali-2.scaled"
    assert not (tmp_path / "ali-2").exists(), "where the table of its own size would be"
    assert (folder / "picture.png").read_bytes()[:4] == b"\x89PNG"
    assert "[85.65]" in (folder / "table.md").read_text()
    assert "`budget.rounds=2`" in (folder / "table.md").read_text()
    first = (folder / "results.csv").read_text()
    code, out, error = dpfl(capsys, *command, "--json")
    assert "1/1" not in error
    assert (folder / "results.csv").read_text() == first
    assert (
        dpfl(capsys, "reproduce", "ali-2", *SMALL, "--done", "--out", tmp_path, "--json")[1] == out
    )
    assert "budget.rounds=2" in json.loads(out)["settings"]
    found = json.loads(out)["cells"][0]
    assert found["terms"] == "one sample, add/remove one, delta 1e-05, by pld"
    assert f"Proven for {found['terms']}." in (folder / "table.md").read_text()
    assert found["terms"] in first
    assert found["printed"] == 85.65
    assert 0 < found["proven"] < found["claimed"] < found["paper_epsilon"]


def test_bad_words_are_one_sentence(capsys, tmp_path):
    assert "did you mean 'ali-3'" in refused(capsys, "reproduce", "ali3")
    assert "no such cells" in refused(
        capsys, "reproduce", "ali-3", "--cells", "mnits", "--out", tmp_path
    )
    assert "leave out --done" in refused(capsys, "reproduce", "ali-3", "--done", "--out", tmp_path)
    assert "At least 1 seed" in refused(
        capsys, "reproduce", "ali-3", "--seeds", "0", "--out", tmp_path
    )
    for workers in ("0", "-1"):
        assert "At least 1 worker" in refused(
            capsys, "reproduce", "ali-3", "--workers", workers, "--out", tmp_path
        )


def test_a_folder_that_cannot_be_written_to_is_one_sentence(capsys, tmp_path):
    taken = tmp_path / "taken"
    taken.write_text("a file")
    assert "give another folder with --out" in refused(
        capsys, "reproduce", "ali-2", *SMALL, "--out", taken
    )
    command = ["reproduce", "ali-2", *SMALL, "--cells", "tau = 1", "--out", tmp_path]
    assert dpfl(capsys, *command)[0] == 0
    (tmp_path / "ali-2.scaled").rename(tmp_path / "elsewhere")
    (tmp_path / "ali-2.scaled").write_text("a file")
    assert "the cells are kept" in refused(capsys, *command)
