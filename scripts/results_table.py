"""The pages of docs/results: what was run for the five papers, and what came out.

README.md has one paragraph per paper and one table of results. Each paper has a page with the
longer findings. Numbers come from docs/results/NAME/results.csv and, for runs at another scale,
from NAME.scaled/results.csv. Words come from docs/results/verdicts.toml, which also lists the rows
that README.md shows. docs/results/versions.toml says which code and which day a digest in a cell
stands for.

python scripts/results_table.py          # writes the generated blocks of every page
python scripts/results_table.py --check  # says which pages are not up to date
"""

from __future__ import annotations

import csv
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dpfl_papers import Cell, PaperTable, tables
from dpfl_papers.cost import clips_samples, samples_of, total_duration
from dpfl_papers.table_report import SCALED_SUFFIX, digits, mean_text, shown_epsilon

RESULTS = Path(__file__).parents[1] / "docs" / "results"
SEEDS, BAR = 3, "\\|"
BLOCK = re.compile(
    r"(<!-- made by scripts/results_table\.py: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL
)
HEADS = (
    "what",
    "data, model",
    "command",
    "scale",
    "seeds",
    "printed",
    "ours",
    "epsilon claimed",
    "epsilon proven",
    "code, date",
)
ADAPTIVE = ("ali-dpfl", "als-dpfl")
"""Systems whose steps follow what was released."""
USED = "used"
USUAL = "one sample, add/remove one, delta 1e-05, by pld"
"""What a proven epsilon is for where a row says nothing else."""
NOTHING, NOT_RUN, NOT_RECORDED = "none", "not run", "not recorded"
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
"""Gradients of single samples a second on one core, with a clip on each and without: of whole cells
where there is a clip and of `mlp`, else by `dpfl.planning.speed`; of the two largest models a rough
one."""
PHOTOGRAPHS = 1.3
"""How much longer one of CIFAR-10 takes with `cnn`."""


@dataclass(frozen=True)
class Group:
    """How far one data set of a table is."""

    name: str
    done: int
    cells: int
    hours: float


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
    groups: Sequence[Group] = ()
    """How far each data set is, of a table of several that is not whole."""


def state_of(table: PaperTable, folder: Path = RESULTS, place: str = "") -> State:
    rows = _rows(folder / (place or table.name) / "results.csv")
    settings = _settings(folder / (place or table.name) / "table.md")
    digests = {row["digest"] for row in rows}
    cells = table.with_settings(settings).cells
    each = [
        (cell.place, seed, cell.digest(seed))
        for cell in cells
        for seed in range(SEEDS if digests else 0)
    ]
    known = {digest for *_, digest in each}
    found = [(place, seed) for place, seed, digest in each if digest in digests]
    done = {place for place, _ in found}
    seeds = {place: sum(other == place for other, _ in found) for place in done}
    made = [cell for cell in cells if cell.place in done]
    models = dict.fromkeys(
        cell.work.content["model"]["name"] for cell in made if "model" in cell.work.content
    )
    missing = [cell for cell in table.cells if cell.place not in done]
    earlier = len(
        {(row["group"], row["row"], row["column"]) for row in rows if row["digest"] not in known}
    )
    far = [
        _far(name, [cell for cell in table.cells if cell.group == name], missing)
        for name in _groups(table)
    ]
    groups = far if len(far) > 1 and made and missing else []
    return State(
        len(done),
        len(cells),
        max(seeds.values(), default=0),
        earlier,
        settings,
        list(models),
        _left(missing),
        groups,
    )


def _groups(table: PaperTable) -> list[str]:
    return list(dict.fromkeys(cell.group for cell in table.cells))


def _far(group: str, cells: Sequence[Cell], missing: Sequence[Cell]) -> Group:
    own = [cell for cell in missing if cell.group == group]
    return Group(group, len(cells) - len(own), len(cells), _left(own))


def _left(cells: Sequence[Cell]) -> float:
    """Hours of a core that equal work, and works that begin alike, take once."""
    contents = [cell.work.content for cell in cells]
    return (
        total_duration(
            (content, 0, _seconds(content)) for content in contents if "model" in content
        )
        / 3600
    )


def _seconds(content: Any) -> float:
    name, clipped = content["model"]["name"], clips_samples(content["algorithm"])
    speed = SPEEDS.get((name, clipped)) or SPEEDS.get((name, not clipped), SPEEDS["cnn", True])
    return (
        samples_of(content)
        / speed
        * (PHOTOGRAPHS if content["data"]["name"] == "cifar10" and name == "cnn" else 1)
    )


def _rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.open())) if path.exists() else []


def _settings(path: Path) -> list[str]:
    """Those that a table says it was scaled by."""
    said = (
        re.search(r"^\*\*Scaled, by (.*): not the paper's size\.\*\*$", path.read_text(), re.M)
        if path.exists()
        else None
    )
    return re.findall(r"`([^`]+)`", said[1]) if said else []


def verdicts(folder: Path = RESULTS) -> dict[str, Any]:
    return tomllib.loads((folder / "verdicts.toml").read_text())


@cache
def versions() -> dict[str, dict[str, Any]]:
    """By the digest that cells record."""
    return {
        one["code"]: one
        for one in tomllib.loads((RESULTS / "versions.toml").read_text())["version"]
    }


def paper_of(table: PaperTable) -> tuple[str, str]:
    """The paper of a table, and what the table is called there."""
    paper, _, what = table.title.partition(", ")
    if ":" in paper:  # ours: no table or figure that a paper prints
        paper, _, what = table.title.partition(": ")
    return paper, what


@dataclass(frozen=True)
class Result:
    """One stored number over its seeds: a cell, and the rows of results.csv that have it."""

    table: PaperTable
    cell: Cell
    rows: Sequence[dict[str, str]]
    scaled: bool = False

    def __post_init__(self) -> None:
        if not self.rows:
            raise ValueError(f"{self.table.name} has no stored cell {self.cell.place}.")

    @property
    def place(self) -> str:
        return f"{self.table.name}{SCALED_SUFFIX * self.scaled}"

    @property
    def what(self) -> str:
        """The table or figure, the row and the column."""
        name = paper_of(self.table)[1].partition(":")[0]
        return f"[{name}]({self.place}/table.md), {self.cell.row}, {self.cell.column}"

    @property
    def setting(self) -> str:
        model = self.cell.work.content.get("model")
        return (
            ", ".join(filter(None, (self.cell.group, model and f"`{model['name']}`")))
            or "closed form"
        )

    @property
    def scale(self) -> str:
        """Clients, rounds and steps per client."""
        content = self.cell.work.content
        if "model" not in content:
            return NOTHING
        cohort, clients = content["algorithm"].get("cohort"), content["data"]["clients"]
        who = f"{cohort} of {clients:,} clients" if cohort else f"{clients:,} clients"
        scaled = ", scaled" if self.scaled else ""
        return f"{who}, {self._range('rounds')} rounds, {self._range('steps')} steps{scaled}"

    def _range(self, column: str) -> str:
        numbers = sorted({int(row[column]) for row in self.rows})
        return f"{numbers[0]:,}" if len(numbers) == 1 else f"{numbers[0]:,} to {numbers[-1]:,}"

    @property
    def printed(self) -> str:
        return NOTHING if self.cell.printed is None else f"{self.cell.printed:g}"

    @property
    def ours(self) -> str:
        values = [float(row["value"]) for row in self.rows if row["value"] != "diverged"]
        return mean_text(values, digits(self.table)) if values else "diverges"

    @property
    def claimed(self) -> str:
        return NOTHING if self.cell.claimed is None else f"{self.cell.claimed:,g}"

    @property
    def proven(self) -> str:
        """The largest of all seeds; marked where it is for other terms, or only for the steps that
        were made.
        """
        found = [row["proven"] for row in self.rows]
        if "unbounded" in found:
            return "unbounded"
        if not all(found):
            return NOTHING
        marks = [USED] if self._used else []
        marks += sorted(
            {row["terms"].removesuffix(", delta 1e-05, by pld") for row in self.rows}
            - {USUAL.partition(", delta")[0]}
        )
        return ", ".join((shown_epsilon(max(map(float, found))), *marks))

    @property
    def _used(self) -> bool:
        adaptive = self.cell.work.content["algorithm"]["name"] in ADAPTIVE
        return adaptive and any(versions()[row["code"]]["adaptive"] == USED for row in self.rows)

    @property
    def made(self) -> str:
        """The code, and the day: of the versions of all seeds."""
        return made_by(self.rows)

    def line(self, note: str = "") -> str:
        proven = f"{self.proven}, {note}" if note else self.proven
        return _line(
            self.what,
            self.setting,
            command_of(self.table),
            self.scale,
            str(len(self.rows)),
            self.printed,
            self.ours,
            self.claimed,
            proven,
            self.made,
        )


def made_by(rows: Sequence[dict[str, str]]) -> str:
    found = [one for one in versions().values() if one["code"] in {row["code"] for row in rows}]
    codes = ", ".join(f"`{one['code'][:7]}`" if one["code"] else NOT_RECORDED for one in found)
    days = sorted({f"{one['stored']}" for one in found})
    return f"{codes}; {days[0]}" if len(days) == 1 else f"{codes}; {days[0]} to {days[-1]}"


def command_of(table: PaperTable) -> str:
    return f"`dpfl reproduce {table.name}`"


def result_of(
    table: PaperTable, where: Sequence[str], folder: Path = RESULTS, scaled: bool = False
) -> Result:
    """The stored cell at a group, row and column."""
    place = folder / f"{table.name}{SCALED_SUFFIX * scaled}"
    cells = table.with_settings(_settings(place / "table.md")).cells
    cell = next((one for one in cells if [one.group, one.row, one.column] == list(where)), None)
    if cell is None:
        raise ValueError(f"{table.name} has no cell {', '.join(where)}.")
    digests = {cell.digest(seed) for seed in range(SEEDS)}
    own = [
        row
        for row in _rows(place / "results.csv")
        if [row["group"], row["row"], row["column"]] == list(where)
    ]
    return Result(table, cell, [row for row in own if row["digest"] in digests], scaled)


def results(folder: Path = RESULTS) -> Iterator[tuple[Result, str]]:
    """Those that README.md shows, with a note beside the proven epsilon where it needs one."""
    shown, known = verdicts(folder)["shown"], tables()
    for name in known:
        for scaled in (False, True):
            for group, row, column, *note in shown.get(f"{name}{SCALED_SUFFIX * scaled}", ()):
                yield result_of(known[name], (group, row, column), folder, scaled), "".join(note)


def run_lines(folder: Path = RESULTS) -> Iterator[str]:
    """Yields the tables of README.md, one per paper.

    A table has chosen cells, a picture where there are many numbers, and what was not run.
    """
    by_table: dict[str, list[str]] = {}
    for result, note in results(folder):
        by_table.setdefault(result.table.name, []).append(result.line(note))
    pages = {paper["name"]: paper["page"] for paper in verdicts(RESULTS)["paper"]}
    current = ""
    for name, table in tables().items():
        paper = paper_of(table)[0]
        if paper != current:
            yield from ([""] if current else [])
            yield from (f"### [{paper}]({pages[paper]})", "")
            yield from _head(HEADS)
            current = paper
        yield from by_table.get(name) or [_whole(table, folder)]


def _whole(table: PaperTable, folder: Path) -> str:
    """One line for a table of which no cell is shown."""
    what = paper_of(table)[1]
    for place in (table.name, f"{table.name}{SCALED_SUFFIX}"):
        state, rows = state_of(table, folder, place), _rows(folder / place / "results.csv")
        if state.done:
            groups = dict.fromkeys(row["group"] for row in rows)
            setting = ", ".join((*groups, *(f"`{model}`" for model in state.models)))
            seeds = str(state.seeds) if state.seeds == 1 else f"1 to {state.seeds}"
            scale = f"{state.done} of {state.cells} cells{', scaled' * (place != table.name)}"
            name = f"[{what.partition(':')[0]}]({place}/table.md)"
            many, ours = "see the table", f"[picture]({place}/picture.png)"
            return _line(
                name,
                setting,
                command_of(table),
                scale,
                seeds,
                "a picture",
                ours,
                many,
                many,
                made_by(rows),
            )
    return _line(
        what.partition(":")[0],
        NOTHING,
        command_of(table),
        NOT_RUN,
        *(["0", "", NOT_RUN] + [""] * 3),
    )


def paragraphs(folder: Path = RESULTS) -> Iterator[str]:
    """One short paragraph per paper."""
    for paper in verdicts(folder)["paper"]:
        yield f"**[{paper['name']}]({paper['page']})** {' '.join(paper['paragraph'].split())}"
        yield ""


def version_lines() -> Iterator[str]:
    yield from _head(
        (
            "code",
            "commit with this code",
            "commit's day",
            "first stored",
            "plain noise",
            "proven, where tau adapts",
        )
    )
    for one in versions().values():
        code = f"`{one['code']}`" if one["code"] else NOT_RECORDED
        commit = f"`{one['commit']}`" if "commit" in one else NOT_RECORDED
        day = str(one.get("committed", NOT_RECORDED))
        yield _line(code, commit, day, str(one["stored"]), one["noise"], one["adaptive"])


def far_lines(paper: str, folder: Path = RESULTS) -> Iterator[str]:
    """How far each table of a paper was run."""
    yield from _head(
        (
            "table or figure",
            "command",
            "cells",
            "seeds",
            "models",
            "scaled by",
            "hours left per seed",
        )
    )
    for table in tables().values():
        if paper_of(table)[0] != paper:
            continue
        full, beside = (
            state_of(table, folder),
            state_of(table, folder, f"{table.name}{SCALED_SUFFIX}"),
        )
        yield _far_line(table, full, table.name, folder)
        for group in full.groups:
            yield _line(
                f"of it {group.name}",
                "",
                f"{group.done} of {group.cells}",
                "",
                "",
                "",
                _hours(group.hours),
            )
        if (folder / f"{table.name}{SCALED_SUFFIX}").exists():
            yield _far_line(table, beside, f"{table.name}{SCALED_SUFFIX}", folder)


def _hours(hours: float) -> str:
    return f"{float(f'{hours:.2g}'):,g}"


def _far_line(table: PaperTable, state: State, place: str, folder: Path) -> str:
    name = _linked(paper_of(table)[1], folder, place)
    models = ", ".join(f"`{model}`" for model in state.models) or NOTHING
    seeds = f"up to {state.seeds}" if state.seeds > 1 else str(state.seeds)
    settings = ", ".join(f"`{setting}`" for setting in state.settings) or NOTHING
    left = "" if place != table.name else _hours(state.hours)
    return _line(
        name, command_of(table), f"{state.done} of {state.cells}", seeds, models, settings, left
    )


def verdict_lines(paper: str, folder: Path = RESULTS) -> Iterator[str]:
    """What came out of each table of a paper, in sentences."""
    said = verdicts(folder)["table"]
    for name, table in tables().items():
        if paper_of(table)[0] == paper:
            yield (
                f"- **{paper_of(table)[1].partition(':')[0]}** ({command_of(table)}). "
                f"{said.get(name, 'It was not run.')}"
            )


def part_lines(paper: str, folder: Path = RESULTS) -> Iterator[str]:
    """What each algorithm and theorem of a paper came to, in sentences."""
    for part in verdicts(folder)["part"]:
        if part["paper"] == paper:
            how = f"{part['state']} ([test](../../{part['test']}), `{part['command']}`)."
            yield f"- **{part['what']}.** {part['verdict']} {how}"


def blocks(paper: str | None = None, folder: Path = RESULTS) -> dict[str, str]:
    """The generated blocks of README.md, or of the page of a paper."""
    made = (
        {"papers": paragraphs(folder), "runs": run_lines(folder), "versions": version_lines()}
        if paper is None
        else {
            "far": far_lines(paper, folder),
            "verdicts": verdict_lines(paper, folder),
            "parts": part_lines(paper, folder),
        }
    )
    return {name: "\n".join(lines).rstrip() + "\n" for name, lines in made.items()}


def pages(folder: Path = RESULTS) -> dict[str, str | None]:
    """Every page with generated blocks, and the paper that it is of."""
    return {"README.md": None} | {
        paper["page"]: paper["name"] for paper in verdicts(folder)["paper"]
    }


def written(text: str, made: dict[str, str]) -> str:
    """The page with every block in its place."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{made[found[2]]}\n{found[3]}", text)


def _head(names: Sequence[str]) -> tuple[str, str]:
    return _line(*names), "|---" * len(names) + "|"


def _linked(text: str, folder: Path, name: str) -> str:
    return f"[{text}]({name}/table.md)" if (folder / name / "table.md").exists() else text


def _line(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |"


def main(words: Sequence[str]) -> int:
    old = []
    for page, paper in pages().items():
        text = (RESULTS / page).read_text()
        made = written(text, blocks(paper))
        if made != text:
            old.append(page)
        if "--check" not in words:
            (RESULTS / page).write_text(made)
    if "--check" in words:
        print(
            f"Not up to date: {', '.join(old)}. Run python scripts/results_table.py."
            if old
            else "Up to date."
        )
        return int(bool(old))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
