"""Runs cells side by side in processes and stores each outcome at once, so that a command that was
stopped continues where it was.
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
from dpfl.run.records.digests import code_sha256
from dpfl_papers.cells import Cell, Outcome
from dpfl_papers.shared_prefixes import prefix_key

OnOutcome = Callable[[Cell, int, Outcome], None]
CellRun = tuple[Cell, int]
"""A cell and a seed."""


class OutcomeStore:
    """Outcomes by digest, one small file each. All tables share them, so equal work is done once.

    Attributes:
        prefixes: Folder of the checkpoints that runs with the same start share.

    Raises:
        DpflError: If the folder cannot be created.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self.prefixes = folder / "cells", folder / "beginnings"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DpflError(
                f"Results cannot be kept in {folder} ({error.strerror}); give another folder with "
                "--out."
            ) from None

    def get(self, digest: str) -> Outcome | None:
        """Reads an outcome.

        Args:
            digest: Key of a cell and a seed, by `Cell.digest`.

        Returns:
            The outcome; None if there is none yet.

        Raises:
            DpflError: If the file is damaged.
        """
        path = self._folder / f"{digest}.json"
        try:
            return Outcome.from_json(path.read_text()) if path.exists() else None
        except (OSError, ValueError, TypeError) as error:
            raise DpflError(
                f"The result {path} cannot be read ({error}); remove it, and it is made again."
            ) from None

    def put(self, digest: str, outcome: Outcome) -> None:
        """Writes an outcome. The file is complete before it takes its name.

        Args:
            digest: Key of a cell and a seed, by `Cell.digest`.
            outcome: The outcome.

        Raises:
            DpflError: If the disk refuses.
        """
        path = self._folder / f"{digest}.json"
        partial_path = path.with_suffix(".part")
        try:
            partial_path.write_text(outcome.to_json())
            partial_path.replace(path)
        except OSError as error:
            raise DpflError(
                f"The result {path} cannot be kept ({error.strerror}); fix the disk, and give the "
                "command again."
            ) from None


def run_cells(
    cells: Sequence[Cell],
    seeds: Sequence[int],
    store: OutcomeStore,
    workers: int,
    data_dir: Path | None,
    on_outcome: OnOutcome,
) -> None:
    """Runs every cell with every seed that has no outcome yet.

    The first seed of all cells comes before the second of any.

    Args:
        cells: The cells.
        seeds: The seeds.
        store: Where outcomes are read and written.
        workers: Number of processes; 1 runs everything in this one.
        data_dir: Folder of the data sets; by default `DPFL_DATA`.
        on_outcome: Called with cell, seed and outcome after each run.

    Raises:
        DpflError: If a cell is not valid, or a process died.
    """
    if workers < 1:
        raise DpflError(f"At least 1 worker is needed, not {workers}.")
    runs: dict[str, CellRun] = {}
    for seed in seeds:
        for cell in cells:
            runs.setdefault(cell.digest(seed), (cell, seed))
    missing = {digest: cell_run for digest, cell_run in runs.items() if store.get(digest) is None}
    run = partial(_run, data_dir=data_dir, prefixes=store.prefixes)
    for digest, outcome in _outcomes(serial_groups(missing), missing, workers, run):
        store.put(digest, outcome)
        on_outcome(*missing[digest], outcome)


def serial_groups(missing: Mapping[str, CellRun]) -> list[list[str]]:
    """Groups the runs: groups may run side by side, and the runs of a group one after another.

    Args:
        missing: Cell and seed by digest.

    Returns:
        Groups of digests. Runs that start alike are in one group, the shorter before the longer.
    """
    groups: dict[str, list[str]] = {}
    for digest, (cell, seed) in missing.items():
        groups.setdefault(prefix_key(cell.work.content, seed) or digest, []).append(digest)
    return [
        sorted(group, key=lambda digest: _rounds(missing[digest])) if len(group) > 1 else group
        for group in groups.values()
    ]


def _rounds(cell_run: CellRun) -> int:
    return int(cell_run[0].work.content["budget"]["rounds"])


def count_missing(
    cells: Sequence[Cell], seeds: Sequence[int], store: OutcomeStore
) -> tuple[int, int]:
    """Counts the runs of some cells.

    Args:
        cells: The cells.
        seeds: The seeds.
        store: Where outcomes are read.

    Returns:
        The number of different runs, and how many of them have no outcome yet.
    """
    digests = {cell.digest(seed) for seed in seeds for cell in cells}
    return len(digests), sum(store.get(digest) is None for digest in digests)


def _outcomes(
    groups: Sequence[Sequence[str]],
    runs: Mapping[str, CellRun],
    workers: int,
    run: Callable[[Cell, int], Outcome],
) -> Iterator[tuple[str, Outcome]]:
    if workers == 1:
        for digest in chain.from_iterable(groups):
            yield digest, run(*runs[digest])
        return
    with ProcessPoolExecutor(workers, worker_context(), torch.set_num_threads, (1,)) as pool:
        running: dict[Future[Outcome], list[str]] = {}

        def submit(group: Sequence[str]) -> None:
            if group:
                running[pool.submit(run, *runs[group[0]])] = list(group)

        try:
            for group in groups:
                submit(group)
            while running:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    digest, *rest = running.pop(future)
                    submit(rest)
                    yield digest, future.result()
        except BrokenProcessPool:
            raise DpflError(
                "A process that ran cells has died; what is done is kept: give the same command "
                "again."
            ) from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _run(cell: Cell, seed: int, data_dir: Path | None, prefixes: Path) -> Outcome:
    try:
        return replace(cell.work.run(seed, data_dir, prefixes), code=code_sha256()[:12])
    except DpflError as error:
        raise DpflError(f"{cell.place}: {error}") from None
