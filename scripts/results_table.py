"""The table of docs/results/README.md: every algorithm, theorem, table and figure of the five papers, how far it was run, and
what came out.

States are read off docs/results/NAME/results.csv, and of what was run at another scale off NAME.scaled/results.csv beside it;
verdicts are in docs/results/verdicts.toml.

python scripts/results_table.py          # writes the table into docs/results/README.md
python scripts/results_table.py --check  # says whether it is up to date
"""

from __future__ import annotations

import csv
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpfl.reproduce import Cell, Table, tables
from dpfl.reproduce.cost import clips_samples, longest, samples_of
from dpfl.reproduce.report import SCALED

RESULTS = Path(__file__).parents[1] / "docs" / "results"
SEEDS, BAR = 3, "\\|"
BEGIN, END = "<!-- made by scripts/results_table.py -->", "<!-- end of what scripts/results_table.py made -->"
SPEEDS = {
    ("cnn", True): 4_700, ("cnn", False): 18_000, ("cnn-wide", True): 2_000, ("cnn-wide", False): 2_900,
    ("mlp", False): 100_000, ("alexnet", False): 420, ("mobilenet-v2", False): 66, ("resnet-18", False): 20,
    ("scattering-linear", True): 3_000,
}  # fmt: skip
"""Gradients of single samples a second on one core, with a clip on each and without: of whole cells where there is a clip and
of `mlp`, else by `dpfl.planning.speed`; of the two largest models a rough one."""
PHOTOGRAPHS = 1.3
"""How much longer one of CIFAR-10 takes with `cnn`."""


@dataclass(frozen=True)
class State:
    """How far a table was run: cells that are done of all, with which seeds, in which settings."""

    done: int
    cells: int
    seeds: int
    earlier: int
    settings: Sequence[str]
    models: Sequence[str]
    hours: float
    groups: Sequence[str] = ()
    """Of a table of several data sets: how far each is, and what is left of it."""

    def __str__(self) -> str:
        if not self.done:
            before = f"; {self.earlier} cells were run before the table changed" if self.earlier else ""
            return f"not run: {_hours(self.hours)}{before}"
        left = "" if self.done == self.cells or not self.models else f"; the rest: {_hours(self.hours)}"
        return f"{self.far}{left}{self._by_group}"

    @property
    def far(self) -> str:
        """What was run, and how."""
        how = "closed form" if not self.models else f"{self._seeds}, {', '.join(f'`{name}`' for name in self.models)}"
        cells = "whole" if self.done == self.cells else f"{self.done} of {self.cells} cells"
        scaled = f", scaled by {', '.join(f'`{setting}`' for setting in self.settings)}" if self.settings else ""
        return f"{cells}, {how}{scaled}"

    @property
    def _by_group(self) -> str:
        return f" ({'; '.join(self.groups)})" if self.groups else ""

    @property
    def _seeds(self) -> str:
        return "one seed" if self.seeds == 1 else f"up to {self.seeds} seeds"


def _hours(hours: float) -> str:
    return f"some {float(f'{hours:.2g}'):,g} hours of a core a seed" if hours >= 0.1 else "minutes of a core a seed"


def state_of(table: Table, folder: Path = RESULTS, place: str = "") -> State:
    rows = _rows(folder / (place or table.name) / "results.csv")
    settings = _settings(folder / (place or table.name) / "table.md")
    digests = {row["digest"] for row in rows}
    cells = table.scaled(settings).cells
    each = [(cell.place, seed, cell.digest(seed)) for cell in cells for seed in range(SEEDS if digests else 0)]
    known = {digest for *_, digest in each}
    found = [(place, seed) for place, seed, digest in each if digest in digests]
    done = {place for place, _ in found}
    seeds = {place: sum(other == place for other, _ in found) for place in done}
    made = [cell for cell in cells if cell.place in done]
    models = dict.fromkeys(cell.work.content["model"]["name"] for cell in made if "model" in cell.work.content)
    missing = [cell for cell in table.cells if cell.place not in done]
    earlier = len({(row["group"], row["row"], row["column"]) for row in rows if row["digest"] not in known})
    far = [_far(name, [cell for cell in table.cells if cell.group == name], missing) for name in _groups(table)]
    groups = far if len(far) > 1 and made and missing else []
    return State(len(done), len(cells), max(seeds.values(), default=0), earlier, settings, list(models), _left(missing), groups)


def _groups(table: Table) -> list[str]:
    return list(dict.fromkeys(cell.group for cell in table.cells))


def _far(group: str, cells: Sequence[Cell], missing: Sequence[Cell]) -> str:
    own = [cell for cell in missing if cell.group == group]
    left = f", the rest {_left(own):.2g} hours" if own else ""
    return f"{group} {len(cells) - len(own)} of {len(cells)}{left}"


def _left(cells: Sequence[Cell]) -> float:
    """Hours of a core that equal work, and works that begin alike, take once."""
    contents = [cell.work.content for cell in cells]
    return longest((content, 0, _seconds(content)) for content in contents if "model" in content) / 3600


def _seconds(content: Any) -> float:
    name, clipped = content["model"]["name"], clips_samples(content["algorithm"])
    speed = SPEEDS.get((name, clipped)) or SPEEDS.get((name, not clipped), SPEEDS["cnn", True])
    return samples_of(content) / speed * (PHOTOGRAPHS if content["data"]["name"] == "cifar10" and name == "cnn" else 1)


def _rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.open())) if path.exists() else []


def _settings(path: Path) -> list[str]:
    """Those that a table says it was scaled by."""
    said = re.search(r"^\*\*Scaled, by (.*): not the paper's size\.\*\*$", path.read_text(), re.M) if path.exists() else None
    return re.findall(r"`([^`]+)`", said[1]) if said else []


def verdicts(folder: Path = RESULTS) -> dict[str, Any]:
    return tomllib.loads((folder / "verdicts.toml").read_text())


def lines(folder: Path = RESULTS) -> Iterator[str]:
    said, known = verdicts(folder), tables()
    yield "| paper | what | command | state | verdict |"
    yield "|---|---|---|---|---|"
    for part in said["part"]:
        state = f"{part['state']}; [test](../../{part['test']})" if "test" in part else part["state"]
        yield _line(part["paper"], part["what"], f"`{part['command']}`", state, part["verdict"])
    for name, table in known.items():
        paper, _, what = table.title.partition(", ")
        if ":" in paper:  # ours: no table or figure that a paper prints
            paper, _, what = table.title.partition(": ")
        state = state_of(table, folder)
        verdict = said["table"].get(name, "nothing can be said")
        where = _linked(str(state), folder, name)
        if (folder / f"{name}{SCALED}").exists():
            beside = _linked(state_of(table, folder, f"{name}{SCALED}").far, folder, f"{name}{SCALED}")
            where = f"{where}; {beside}" if state.done else f"{beside}; at full size {state}"
        yield _line(paper, what, f"`dpfl reproduce {name}`", where, verdict)


def _linked(text: str, folder: Path, name: str) -> str:
    return f"[{text}]({name}/table.md)" if (folder / name / "table.md").exists() else text


def _line(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |"


def section(folder: Path = RESULTS) -> str:
    return "\n".join([BEGIN, *lines(folder), END])


def written(text: str, made: str) -> str:
    """The page with the table in its place."""
    before, _, rest = text.partition(BEGIN)
    return before + made + rest.partition(END)[2]


def main(words: Sequence[str]) -> int:
    page = RESULTS / "README.md"
    text = page.read_text()
    made = written(text, section())
    if "--check" in words:
        print("up to date" if made == text else "docs/results/README.md is not: run python scripts/results_table.py")
        return int(made != text)
    page.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
