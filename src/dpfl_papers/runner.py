"""Cells side by side in processes, each kept as soon as it is done: work that was stopped goes on
where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

import torch

from dpfl.engines.pool import worker_context
from dpfl.errors import DpflError
from dpfl.run.digests import code_sha256
from dpfl_papers.cells import Cell, Outcome
from dpfl_papers.shared_prefixes import beginning

Tell = Callable[[Cell, int, Outcome], None]
Errand = tuple[Cell, int]
"""A cell and a seed."""


class OutcomeStore:
    """Outcomes by digest, one small file each, shared by all tables: equal work is done once."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.beginnings = folder / "cells", folder / "beginnings"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DpflError(
                f"Results cannot be kept in {folder} ({error.strerror}); give another folder with "
                "--out."
            ) from None

    def get(self, digest: str) -> Outcome | None:
        path = self._folder / f"{digest}.json"
        try:
            return Outcome.from_json(path.read_text()) if path.exists() else None
        except (OSError, ValueError, TypeError) as error:
            raise DpflError(
                f"The result {path} cannot be read ({error}); remove it, and it is made again."
            ) from None

    def put(self, digest: str, outcome: Outcome) -> None:
        path = self._folder / f"{digest}.json"
        beside = path.with_suffix(".part")
        try:
            beside.write_text(outcome.to_json())
            beside.replace(path)
        except OSError as error:
            raise DpflError(
                f"The result {path} cannot be kept ({error.strerror}); mend the disk, and give the "
                "command again."
            ) from None


def work_through(
    cells: Sequence[Cell],
    seeds: Sequence[int],
    kept: OutcomeStore,
    workers: int,
    data_dir: Path | None,
    tell: Tell,
) -> None:
    """Every cell with every seed, the first seed of all before the second of any; what is kept is
    not made again.
    """
    if workers < 1:
        raise DpflError(f"At least 1 worker is needed, not {workers}.")
    wanted: dict[str, Errand] = {}
    for seed in seeds:
        for cell in cells:
            wanted.setdefault(cell.digest(seed), (cell, seed))
    missing = {digest: errand for digest, errand in wanted.items() if kept.get(digest) is None}
    run = partial(_run, data_dir=data_dir, beginnings=kept.beginnings)
    for digest, outcome in _made(lines_of(missing), missing, workers, run):
        kept.put(digest, outcome)
        tell(*missing[digest], outcome)


def lines_of(missing: Mapping[str, Errand]) -> list[list[str]]:
    """What can be done side by side; works that begin alike are in one line, the shorter before the
    longer.
    """
    lines: dict[str, list[str]] = {}
    for digest, (cell, seed) in missing.items():
        lines.setdefault(beginning(cell.work.content, seed) or digest, []).append(digest)
    return [
        sorted(line, key=lambda digest: _rounds(missing[digest])) if len(line) > 1 else line
        for line in lines.values()
    ]


def _rounds(errand: Errand) -> int:
    return int(errand[0].work.content["budget"]["rounds"])


def left_to_do(cells: Sequence[Cell], seeds: Sequence[int], kept: OutcomeStore) -> tuple[int, int]:
    """How many pieces of work there are, and how many of them are not done."""
    digests = {cell.digest(seed) for seed in seeds for cell in cells}
    return len(digests), sum(kept.get(digest) is None for digest in digests)


def _made(
    lines: Sequence[Sequence[str]],
    errands: Mapping[str, Errand],
    workers: int,
    run: Callable[[Cell, int], Outcome],
) -> Iterator[tuple[str, Outcome]]:
    if workers == 1:
        for digest in chain.from_iterable(lines):
            yield digest, run(*errands[digest])
        return
    with ProcessPoolExecutor(workers, worker_context(), torch.set_num_threads, (1,)) as pool:
        under_way: dict[Future[Outcome], list[str]] = {}

        def begin(line: Sequence[str]) -> None:
            if line:
                under_way[pool.submit(run, *errands[line[0]])] = list(line)

        try:
            for line in lines:
                begin(line)
            while under_way:
                for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                    digest, *rest = under_way.pop(future)
                    begin(rest)
                    yield digest, future.result()
        except BrokenProcessPool:
            raise DpflError(
                "A process that ran cells has died; what is done is kept: give the same command "
                "again."
            ) from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _run(cell: Cell, seed: int, data_dir: Path | None, beginnings: Path) -> Outcome:
    try:
        return replace(cell.work.run(seed, data_dir, beginnings), code=code_sha256()[:12])
    except DpflError as error:
        raise DpflError(f"{cell.place}: {error}") from None
