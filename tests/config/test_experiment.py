"""An experiment file: the demo without one, changes on top of it, and what nodes cannot do."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfl.config.experiment import DEMO, load, parse
from dpfl.errors import DpflError


def test_without_a_file_the_experiment_is_the_demo() -> None:
    experiment = load(None)
    assert experiment.algorithm.name == DEMO["algorithm"]["name"]
    assert (experiment.budget.epsilon, experiment.budget.rounds) == (4.0, 80)


def test_another_system_does_not_inherit_options_of_the_demo() -> None:
    assert load(None, ["algorithm.name=fedavg"]).algorithm.options() == {}
    assert load(None, ["budget.rounds=5"]).algorithm == load(None).algorithm


def test_a_file_is_read_with_changes_on_top(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text("seed = 3\n[data]\nclients = 4\n")
    experiment = load(file, ["data.clients=5"])
    assert (experiment.seed, experiment.data.clients, experiment.clients()) == (3, 5, 5)
    with pytest.raises(DpflError, match="no option 'clientz'"):
        load(file, ["data.clientz=5", "data.name=mnist-sample"]).federation()


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"data": {"public_clients": 2}}, "remove data.public_clients"),
        ({"privacy": {"entropy": "keyed"}}, "never from a seed: remove privacy.entropy"),
    ],
)
def test_what_only_a_simulation_can_do_is_refused_over_nodes(
    section: dict[str, object], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dpfl.node.policy import SEED

    monkeypatch.delenv(SEED, raising=False)
    with pytest.raises(DpflError, match=said):
        parse(section).proposal(("a", "b"))


def test_nodes_of_this_machine_get_a_part_of_the_data_each() -> None:
    sections = parse({"seed": 7, "data": {"partition": "iid"}}).node_sections(2)
    assert list(sections) == ["node-0", "node-1"]
    assert [section["split"]["client"] for section in sections.values()] == [0, 1]
    assert all(section["split"]["seed"] == 7 for section in sections.values())
