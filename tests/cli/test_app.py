"""The command line as a user meets it: answers, JSON, and one sentence with exit code 2 for what is
wrong.
"""

from __future__ import annotations

import pytest

from dpfl.cli import main
from dpfl.cli.app import COMMANDS, load_command
from tests.cli.command_line import dpfl


def test_help_and_version(capsys):
    code, out, _ = dpfl(capsys, "--help")
    assert code == 0
    for command in ("run", "plan", "runs", "compare", "data", "ledger"):
        assert command in out
    assert dpfl(capsys, "--version")[1].strip() == "0.2.0"


def test_arguments_are_explained_too() -> None:
    """Fault: click 8.5 dropped the help of every argument."""
    for name in COMMANDS:
        command = load_command(name)
        for one in (command, *getattr(command, "commands", {}).values()):
            assert all(parameter.help for parameter in one.params), (name, one.name)


def test_what_nobody_foresaw_is_one_sentence_with_the_place_of_the_traceback(
    capsys, monkeypatch, tmp_path
):
    def failing(*_: object) -> None:
        raise ZeroDivisionError("two\nlines")

    monkeypatch.setattr("dpfl.cli.runs.summary", failing)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "runs" / "one").mkdir(parents=True)
    (tmp_path / "runs" / "one" / "experiment.toml").touch()
    monkeypatch.setattr("sys.argv", ["dpfl", "runs", str(tmp_path / "runs")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert "ZeroDivisionError: two" in said
    assert len(said.splitlines()) == 1
    (kept,) = tmp_path.glob("dpfl-traceback-*.txt")
    assert str(kept) in said
    assert "Traceback" in kept.read_text()
    monkeypatch.setenv("DPFL_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        main()
