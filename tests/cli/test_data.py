"""The commands `dpfl data`: what they print, and one sentence for what is wrong."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dpfl.cli.data import app
from dpfl.errors import DpflError


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_show_prints_a_table_by_default():
    result = run("show")
    assert result.exit_code == 0, result.output
    assert "mnist-sample, dirichlet(beta=0.05, minimum=20)" in result.output
    assert "all 10" in result.output


def test_show_prints_json_and_draws(tmp_path):
    png = tmp_path / "holdings.png"
    result = run(
        "show",
        "--partition",
        "unequal",
        "--set",
        "ratio=4",
        "--clients",
        "4",
        "--json",
        "--png",
        str(png),
    )
    assert result.exit_code == 0, result.output
    said = json.loads(result.output)
    assert said["partition"] == "unequal(ratio=4, minimum=20)"
    assert sum(said["sizes"]) == 8000
    assert np.array(said["label_counts"]).shape == (4, 10)
    assert said["test_size"] == 2000
    assert len(said["sha256"]) == 64
    assert png.stat().st_size > 1000


def test_show_lists_some_of_many_notes():
    result = run("show", "--clients", "200", "--public-clients", "1")
    assert result.exit_code == 0, result.output
    assert "more notes" in result.output


def test_show_takes_beta_for_a_mix():
    result = run(
        "show", "--partition", "mix", "--set", "share=0.5", "--beta", "0.3", "--json", "--seed", "3"
    )
    assert "beta=0.3" in json.loads(result.output)["partition"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "mnits"), "did you mean 'mnist'"),
        (("show", "--partition", "iid", "--beta", "1"), "no option 'beta'"),
        (("show", "--set", "minimum"), "KEY=VALUE"),
        (("show", "--set", "minimum=few"), "minimum is 'few'"),
        (("get", "mnist-sample"), "comes with the package"),
    ],
)
def test_errors_are_sentences(arguments, said):
    result = run(*arguments)
    assert isinstance(result.exception, DpflError)
    assert said in str(result.exception)


def test_get_says_where_the_data_is(tmp_path):
    folder = tmp_path / "cifar10" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for name in (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"):
        (folder / name).touch()
    result = run("get", "cifar10", "--data-dir", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert f"cifar10 is in {tmp_path / 'cifar10'}" in result.output


def test_without_a_command_the_help_is_shown():
    assert "client has" in run().output


def test_a_table_is_shown_by_its_sites_with_what_its_owner_should_know(tmp_path: Path) -> None:
    rows = "".join(f"{number},{'ab'[number % 2]},{number % 3 == 0:d}\n" for number in range(20))
    (tmp_path / "stays.csv").write_text(f"age,hospital,died\n{rows}")
    experiment = tmp_path / "experiment.toml"
    experiment.write_text(
        f'[data]\nname = "{tmp_path / "stays.csv"}"\nlabel = "died"\ntask = "binary"\nsite = '
        '"hospital"\nsites = ["a", "b"]\n'
        "[data.columns.age]\nlow = 0\nhigh = 9\n"
    )
    result = CliRunner().invoke(app, ["show", str(experiment)])
    assert result.exit_code == 0
    assert "client  rows   0  1" in result.output
    clamped = "10 cells of 'age' beyond the declared bounds: clamped"
    assert f"{clamped} (shown only to the owner of the data)" in result.output


def test_randhie_is_shown_by_its_sites() -> None:
    result = CliRunner().invoke(app, ["show", "randhie", "--json"])
    assert result.exit_code == 0
    assert len(json.loads(result.output)["sizes"]) == 6
