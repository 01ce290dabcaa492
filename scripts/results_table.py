"""Writes the pages of docs/results: the runs for the five papers and their results.

README.md has one paragraph per paper and one table of results. Each paper has a page with the
longer findings. Numbers come from docs/results/NAME/results.csv and, for runs at another scale,
from NAME.scaled/results.csv. Words come from docs/results/verdicts.toml, which also lists the rows
of README.md. docs/results/versions.toml has the code and the day of each digest in a cell.

python scripts/results_table.py          # writes the generated blocks of every page
python scripts/results_table.py --check  # lists the pages that are not up to date
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from dpfl_papers import PaperTable, tables
from dpfl_papers.table_report import SCALED_SUFFIX

sys.path.insert(0, str(Path(__file__).parents[1]))
from scripts.results_row import (
    NOT_RECORDED,
    NOT_RUN,
    NOTHING,
    command_of,
    paper_of,
    results,
    table_head,
    table_line,
    verdicts,
    version_text,
    versions,
)
from scripts.results_state import RESULTS, State, state_of, stored_rows

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


def run_lines(folder: Path = RESULTS) -> Iterator[str]:
    """Yields the tables of README.md, one per paper.

    A table has selected cells, a picture where there are many numbers, and what did not run.
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
            yield from table_head(HEADS)
            current = paper
        yield from by_table.get(name) or [_whole_table_line(table, folder)]


def _whole_table_line(table: PaperTable, folder: Path) -> str:
    """Returns one line for a table without selected cells."""
    what = paper_of(table)[1]
    for place in (table.name, f"{table.name}{SCALED_SUFFIX}"):
        state, rows = state_of(table, folder, place), stored_rows(folder / place / "results.csv")
        if state.done_count:
            groups = dict.fromkeys(row["group"] for row in rows)
            setting = ", ".join((*groups, *(f"`{model}`" for model in state.models)))
            seeds = str(state.seeds) if state.seeds == 1 else f"1 to {state.seeds}"
            scale = f"{state.done_count} of {state.cells} cells{', scaled' * (place != table.name)}"
            name = f"[{what.partition(':')[0]}]({place}/table.md)"
            many, ours = "see the table", f"[picture]({place}/picture.png)"
            return table_line(
                name,
                setting,
                command_of(table),
                scale,
                seeds,
                "a picture",
                ours,
                many,
                many,
                version_text(rows),
            )
    return table_line(
        what.partition(":")[0],
        NOTHING,
        command_of(table),
        NOT_RUN,
        *(["0", "", NOT_RUN] + [""] * 3),
    )


def paragraphs(folder: Path = RESULTS) -> Iterator[str]:
    """Yields one short paragraph per paper."""
    for paper in verdicts(folder)["paper"]:
        yield f"**[{paper['name']}]({paper['page']})** {' '.join(paper['paragraph'].split())}"
        yield ""


def version_lines() -> Iterator[str]:
    """Yields the table of versions."""
    yield from table_head(
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
        yield table_line(code, commit, day, str(one["stored"]), one["noise"], one["adaptive"])


def progress_lines(paper: str, folder: Path = RESULTS) -> Iterator[str]:
    """Yields the progress of each table of a paper."""
    yield from table_head(
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
        yield _progress_line(table, full, table.name, folder)
        for group in full.groups:
            yield table_line(
                f"of it {group.name}",
                "",
                f"{group.done_count} of {group.cells}",
                "",
                "",
                "",
                _hours(group.hours),
            )
        if (folder / f"{table.name}{SCALED_SUFFIX}").exists():
            yield _progress_line(table, beside, f"{table.name}{SCALED_SUFFIX}", folder)


def _hours(hours: float) -> str:
    return f"{float(f'{hours:.2g}'):,g}"


def _progress_line(table: PaperTable, state: State, place: str, folder: Path) -> str:
    name = _link(paper_of(table)[1], folder, place)
    models = ", ".join(f"`{model}`" for model in state.models) or NOTHING
    seeds = f"up to {state.seeds}" if state.seeds > 1 else str(state.seeds)
    settings = ", ".join(f"`{setting}`" for setting in state.settings) or NOTHING
    hours = "" if place != table.name else _hours(state.hours)
    return table_line(
        name,
        command_of(table),
        f"{state.done_count} of {state.cells}",
        seeds,
        models,
        settings,
        hours,
    )


def verdict_lines(paper: str, folder: Path = RESULTS) -> Iterator[str]:
    """Yields the verdict on each table of a paper."""
    sentences = verdicts(folder)["table"]
    for name, table in tables().items():
        if paper_of(table)[0] == paper:
            yield (
                f"- **{paper_of(table)[1].partition(':')[0]}** ({command_of(table)}). "
                f"{sentences.get(name, 'It was not run.')}"
            )


def part_lines(paper: str, folder: Path = RESULTS) -> Iterator[str]:
    """Yields the verdict on each algorithm and theorem of a paper."""
    for part in verdicts(folder)["part"]:
        if part["paper"] == paper:
            how = f"{part['state']} ([test](../../{part['test']}), `{part['command']}`)."
            yield f"- **{part['what']}.** {part['verdict']} {how}"


def blocks(paper: str | None = None, folder: Path = RESULTS) -> dict[str, str]:
    """Returns the generated blocks of README.md, or of the page of a paper."""
    lines_by_block = (
        {"papers": paragraphs(folder), "runs": run_lines(folder), "versions": version_lines()}
        if paper is None
        else {
            "far": progress_lines(paper, folder),
            "verdicts": verdict_lines(paper, folder),
            "parts": part_lines(paper, folder),
        }
    )
    return {name: "\n".join(lines).rstrip() + "\n" for name, lines in lines_by_block.items()}


def pages(folder: Path = RESULTS) -> dict[str, str | None]:
    """Returns every page with generated blocks, and its paper."""
    return {"README.md": None} | {
        paper["page"]: paper["name"] for paper in verdicts(folder)["paper"]
    }


def fill_blocks(text: str, texts: dict[str, str]) -> str:
    """Returns a page with every block in its place."""
    return BLOCK.sub(lambda match: f"{match[1]}\n{texts[match[2]]}\n{match[3]}", text)


def _link(text: str, folder: Path, name: str) -> str:
    return f"[{text}]({name}/table.md)" if (folder / name / "table.md").exists() else text


def main(words: Sequence[str]) -> int:
    """Writes or checks every page. Returns 1 if a check fails."""
    old = []
    for page, paper in pages().items():
        text = (RESULTS / page).read_text()
        new_text = fill_blocks(text, blocks(paper))
        if new_text != text:
            old.append(page)
        if "--check" not in words:
            (RESULTS / page).write_text(new_text)
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
