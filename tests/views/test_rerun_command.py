"""The command in a report repeats the run."""

from __future__ import annotations

import shlex
import tomllib

import pytest

from dpfl.config.experiment import load, parse
from dpfl.views.rerun_command import command


@pytest.mark.parametrize(
    "settings",
    [
        ["budget.rounds=3"],
        ["algorithm.name=dp-fedavg", "budget.rounds=3", "seed=7", "data.clients=4"],
        ["algorithm.name=ali-dpfl", 'data.names=["a", "its $(b)"]', "data.clients=2"],
    ],
)
def test_a_command_repeats_the_experiment(settings: list[str]) -> None:
    asked = load(None, settings)
    text = command({"experiment": asked.model_dump(exclude_none=True)})
    if "<<" in text:
        again = parse(tomllib.loads(text.partition("\n")[2].removesuffix("END")))
    else:
        again = load(None, [word for word in shlex.split(text)[2:] if word != "--set"])
    assert again == asked
