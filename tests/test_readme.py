"""What the README prints runs as printed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

from typer.testing import CliRunner

from dpfl.cli.app import app
from dpfl.experiment import DEMO, load

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def test_the_readme_opens_with_the_two_commands():
    first = blocks("")[0]
    assert [line.split("#")[0].strip() for line in first.splitlines()] == ["make demo", "make test"]
    assert README.index("make demo") < 40


def test_the_python_example_runs_as_printed(tmp_path):
    (example,) = blocks("python")
    assert len([line for line in example.splitlines() if line.strip()]) <= 11
    done = subprocess.run([sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    accuracy, proven, folder = done.stdout.splitlines()[0].split()
    assert 0.3 < float(accuracy) < 1
    assert 0 < float(proven) <= 4
    assert (tmp_path / folder / "statement.json").exists()


def test_the_experiment_in_the_readme_is_the_demo():
    (text,) = blocks("toml")
    assert tomllib.loads(text) == DEMO


def test_the_examples_are_valid():
    for path in (ROOT / "examples").glob("*.toml"):
        load(path)


def test_the_plan_in_the_readme_prints_what_it_says():
    command, answer = re.search(r"^\$ (dpfl plan .*)\n(.*)$", README, re.MULTILINE).groups()
    printed = CliRunner().invoke(app, shlex.split(command)[1:]).stdout
    assert " ".join(printed.split()) == answer
