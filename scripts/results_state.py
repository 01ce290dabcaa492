"""Reads how far the tables of the papers were run, from the files of docs/results."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpfl_papers import Cell, PaperTable
from dpfl_papers.cost import clips_samples, samples_of, total_duration

RESULTS = Path(__file__).parents[1] / "docs" / "results"
SEEDS = 3
SPEEDS = {
    ("cnn", True): 4_700,
    ("cnn", False): 18_000,
    ("cnn-wide", True): 2_000,
    ("cnn-wide", False): 2_900,
    ("mlp", False): 100_000,
    ("alexnet", False): 420,
    ("mobilenet-v2", False): 66,
    ("resnet-18", False): 20,
    ("scattering-linear", True): 3_000,
}
"""Gradients of single samples a second on one core, by model, and by whether each is clipped.

Those with a clip and those of `mlp` are measured in whole cells, the others by
`dpfl.planning.speed`. Those of the two largest models are rough.
"""

CIFAR10_FACTOR = 1.3
"""How much longer an image of CIFAR-10 takes than one of MNIST with `cnn`."""


@dataclass(frozen=True)
class Group:
    """The progress of one data set of a table."""

    name: str
    done_count: int
    cells: int
    hours: float


@dataclass(frozen=True)
class State:
    """The progress of a table: finished cells, their seeds, and the settings of a scaled run."""

    done_count: int
    cells: int
    seeds: int
    earlier: int
    settings: Sequence[str]
    models: Sequence[str]
    hours: float
    groups: Sequence[Group] = ()
    """The progress of each data set, for an unfinished table of several."""


def state_of(table: PaperTable, folder: Path = RESULTS, place: str = "") -> State:
    """Reads the progress of a table."""
    rows = stored_rows(folder / (place or table.name) / "results.csv")
    settings = scale_settings(folder / (place or table.name) / "table.md")
    digests = {row["digest"] for row in rows}
    cells = table.with_settings(settings).cells
    each = [
        (cell.place, seed, cell.digest(seed))
        for cell in cells
        for seed in range(SEEDS if digests else 0)
    ]
    current_digests = {digest for *_, digest in each}
    finished_seeds = [(place, seed) for place, seed, digest in each if digest in digests]
    done_places = {place for place, _ in finished_seeds}
    seeds = {place: sum(other == place for other, _ in finished_seeds) for place in done_places}
    done_cells = [cell for cell in cells if cell.place in done_places]
    models = dict.fromkeys(
        cell.work.content["model"]["name"] for cell in done_cells if "model" in cell.work.content
    )
    missing = [cell for cell in table.cells if cell.place not in done_places]
    earlier = len(
        {
            (row["group"], row["row"], row["column"])
            for row in rows
            if row["digest"] not in current_digests
        }
    )
    groups_of_table = [
        _group_progress(name, [cell for cell in table.cells if cell.group == name], missing)
        for name in _groups(table)
    ]
    groups = groups_of_table if len(groups_of_table) > 1 and done_cells and missing else []
    return State(
        len(done_places),
        len(cells),
        max(seeds.values(), default=0),
        earlier,
        settings,
        list(models),
        _hours_of_work(missing),
        groups,
    )


def _groups(table: PaperTable) -> list[str]:
    return list(dict.fromkeys(cell.group for cell in table.cells))


def _group_progress(group: str, cells: Sequence[Cell], missing: Sequence[Cell]) -> Group:
    own = [cell for cell in missing if cell.group == group]
    return Group(group, len(cells) - len(own), len(cells), _hours_of_work(own))


def _hours_of_work(cells: Sequence[Cell]) -> float:
    """Returns the hours on one core. Equal runs, and common beginnings of runs, count once."""
    contents = [cell.work.content for cell in cells]
    return (
        total_duration(
            (content, 0, _seconds(content)) for content in contents if "model" in content
        )
        / 3600
    )


def _seconds(content: Any) -> float:
    name, clips = content["model"]["name"], clips_samples(content["algorithm"])
    speed = SPEEDS.get((name, clips)) or SPEEDS.get((name, not clips), SPEEDS["cnn", True])
    return (
        samples_of(content)
        / speed
        * (CIFAR10_FACTOR if content["data"]["name"] == "cifar10" and name == "cnn" else 1)
    )


def stored_rows(path: Path) -> list[dict[str, str]]:
    """Reads the rows of results.csv, if it exists."""
    return list(csv.DictReader(path.open())) if path.exists() else []


def scale_settings(path: Path) -> list[str]:
    """Reads the settings that a table was scaled by."""
    match = (
        re.search(r"^\*\*Scaled, by (.*): not the paper's size\.\*\*$", path.read_text(), re.M)
        if path.exists()
        else None
    )
    return re.findall(r"`([^`]+)`", match[1]) if match else []
