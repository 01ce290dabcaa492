"""The word `run` may be left out where the first word is not a command."""

from __future__ import annotations

import typer
from typer.testing import CliRunner

from dpfl.cli.shorthand import RunShorthandGroup

app = typer.Typer(cls=RunShorthandGroup, no_args_is_help=True)


@app.command()
def run(file: str, out: str = "-") -> None:
    print("run", file, out)


@app.command()
def init(folder: str) -> None:
    print("init", folder)


def output(*words: str) -> str:
    return CliRunner().invoke(app, list(words)).output


def test_run_is_the_command_that_may_be_left_out() -> None:
    assert (
        output("a.toml", "--out", "b") == output("run", "a.toml", "--out", "b") == "run a.toml b\n"
    )
    assert output("--out", "b", "a.toml") == "run a.toml b\n"
    assert output("init", "folder") == "init folder\n"


def test_without_words_the_help_is_shown() -> None:
    for text in (output(), output("--help")):
        assert "init" in text
