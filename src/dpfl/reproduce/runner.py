"""Cells side by side in processes, each kept as soon as it is done: work that was stopped goes on where it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path

import torch

from dpfl.engines.local import processes
from dpfl.errors import DpflError
from dpfl.reproduce.cells import Cell, Outcome
from dpfl.run.folder import code_sha256

Tell = Callable[[Cell, int, Outcome], None]


class Kept:
    """Outcomes by digest, one small file each, shared by all tables: equal work is done once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "cells"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DpflError(f"Results cannot be kept in {folder} ({error.strerror}); give another folder with --out.") from None

    def get(self, digest: str) -> Outcome | None:
        path = self._folder / f"{digest}.json"
        try:
            return Outcome.from_json(path.read_text()) if path.exists() else None
        except (OSError, ValueError, TypeError) as error:
            raise DpflError(f"The result {path} cannot be read ({error}); remove it, and it is made again.") from None

    def put(self, digest: str, outcome: Outcome) -> None:
        path = self._folder / f"{digest}.json"
        beside = path.with_suffix(".part")
        try:
            beside.write_text(outcome.to_json())
            beside.replace(path)
        except OSError as error:
            raise DpflError(
                f"The result {path} cannot be kept ({error.strerror}); mend the disk, and give the command again."
            ) from None


def work_through(
    cells: Sequence[Cell], seeds: Sequence[int], kept: Kept, workers: int, data_dir: Path | None, tell: Tell
) -> None:
    """Every cell with every seed, the first seed of all before the second of any; what is kept is not made again."""
    if workers < 1:
        raise DpflError(f"At least 1 worker is needed, not {workers}.")
    wanted: dict[str, tuple[Cell, int]] = {}
    for seed in seeds:
        for cell in cells:
            wanted.setdefault(cell.digest(seed), (cell, seed))
    missing = {digest: errand for digest, errand in wanted.items() if kept.get(digest) is None}
    for digest, outcome in _made(missing, workers, data_dir):
        kept.put(digest, outcome)
        tell(*missing[digest], outcome)


def left_to_do(cells: Sequence[Cell], seeds: Sequence[int], kept: Kept) -> tuple[int, int]:
    """How many pieces of work there are, and how many of them are not done."""
    digests = {cell.digest(seed) for seed in seeds for cell in cells}
    return len(digests), sum(kept.get(digest) is None for digest in digests)


def _made(missing: dict[str, tuple[Cell, int]], workers: int, data_dir: Path | None) -> Iterator[tuple[str, Outcome]]:
    if workers == 1:
        for digest, (cell, seed) in missing.items():
            yield digest, _run(cell, seed, data_dir)
        return
    with ProcessPoolExecutor(workers, processes(), torch.set_num_threads, (1,)) as pool:
        futures: dict[Future[Outcome], str] = {
            pool.submit(_run, cell, seed, data_dir): digest for digest, (cell, seed) in missing.items()
        }
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool:
            raise DpflError("A process that ran cells has died; what is done is kept: give the same command again.") from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _run(cell: Cell, seed: int, data_dir: Path | None) -> Outcome:
    try:
        return replace(cell.work.run(seed, data_dir), code=code_sha256()[:12])
    except DpflError as error:
        raise DpflError(f"{cell.place}: {error}") from None
