"""One run as a line of the list of runs, read quickly.

Of the record only the tables that the line needs are read, which is five times as quick as all.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpfl.errors import DpflError
from dpfl.privacy.statement_view import GuaranteeView
from dpfl.run.metrics import RoundRow, query
from dpfl.run.records.folder import METRICS, RunFolder
from dpfl.views.budget_view import BudgetView
from dpfl.views.run_progress import run_budget
from dpfl.views.run_summary import RunFacts

HEADS = ("run", "experiment.data", "resolved", "resolved.algorithm", "resolved.budget")
"""The tables of `experiment.toml` that a line needs."""

BUDGETS = ("epsilon", "delta", "rounds", "bytes", "seconds")

EMPTY = (
    "system",
    "variant",
    "data",
    "model",
    "clients",
    "seed",
    "measured",
    "epsilon",
    "proven",
    "stopped_by",
    "started",
    "ended",
)
"""The values of a run that cannot be read."""


@contextmanager
def refuse_malformed(name: str) -> Iterator[None]:
    """Turns damaged files into one sentence. Anybody may have written the files of a folder.

    Args:
        name: What to call the run.

    Yields:
        Nothing.

    Raises:
        DpflError: If reading fails on a value that no run writes.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        cause = f"{type(error).__name__}: {error}"
        raise DpflError(
            f"The files of the run {name!r} are damaged ({cause[:200]}). Restore them from a copy."
        ) from error


def line_of(folder: RunFolder, name: str) -> dict[str, Any]:
    """Reads the line of a run.

    Args:
        folder: The folder of the run.
        name: What to call it.

    Returns:
        What the list shows; unknown values are None.

    Raises:
        DpflError: If its record cannot be read.
    """
    record, result = heads(folder.file("experiment.toml")), folder.json("result.json") or {}
    facts, privacy = RunFacts.of(record, result), result.get("privacy", {})
    # Reading the metrics takes time and leaves files beside them: only where nothing else says it.
    last = None if result else last_row(folder)
    epsilon_so_far = facts.epsilon_so_far(last.epsilon if last else None)
    return {
        "name": name,
        "state": state_of(folder),
        "started": None if facts.started is None else str(facts.started),
        "ended": result.get("ended"),
        "system": facts.algorithm,
        "variant": facts.variant,
        "data": facts.data,
        "model": facts.model,
        "clients": facts.clients,
        "seed": facts.seed,
        "rounds": result.get("rounds", last.round if last else 0),
        "budget": {key: facts.budget.get(key) for key in BUDGETS},
        "headline": facts.headline,
        "measured": last.measured if last else facts.measured,
        "noisy": bool(result.get("noisy")),
        "epsilon": epsilon_so_far,
        "epsilon_so_far": run_budget(facts, epsilon_so_far).to_dict(),
        "proven": privacy.get("proven"),
        "guarantee": facts.guarantee.to_dict(),
        "stopped_by": result.get("stopped_by"),
        "certificate": folder.file("certificate.json").exists(),
        "audited": folder.file("audit.json").exists(),
        "error": None,
    }


def unreadable_line(name: str, error: str) -> dict[str, Any]:
    """Makes the line of a run that cannot be read.

    Args:
        name: What to call it.
        error: Why it cannot be read.

    Returns:
        A line without values.
    """
    guarantee = GuaranteeView.of({})
    values = {
        "name": name,
        "state": "unreadable",
        "budget": {},
        "rounds": 0,
        "headline": "",
        "noisy": False,
        "epsilon_so_far": BudgetView.of(None, None, guarantee).to_dict(),
        "guarantee": guarantee.to_dict(),
        "certificate": False,
        "audited": False,
        "error": error,
    }
    return dict.fromkeys(EMPTY) | values


def state_of(folder: RunFolder) -> str:
    """Tells what a run is doing.

    Args:
        folder: The folder of the run.

    Returns:
        "finished", "running", "paused", or "stopped" if it is at rest and can be resumed.
    """
    if folder.file("result.json").exists():
        return "finished"
    process = folder.process()
    if process is None:
        return "stopped"
    return "paused" if is_paused(process) else "running"


def is_paused(process: int) -> bool:
    """Asks the operating system whether a process is stopped by a signal.

    Args:
        process: Its number.

    Returns:
        Whether it is; False where the system does not say.
    """
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except (OSError, IndexError):
        return False


def heads(path: Path, names: Sequence[str] = HEADS) -> Mapping[str, Any]:
    """Reads some tables of an experiment's record, which has each below a line of its own.

    Args:
        path: The file `experiment.toml`.
        names: The tables.

    Returns:
        Those tables.

    Raises:
        DpflError: If the file cannot be read or is not the record of a run.
    """
    lines, inside = [], False
    try:
        with path.open(encoding="utf-8") as file:
            for line in file:
                if line.startswith("["):
                    inside = line.strip()[1:-1] in names
                if inside:
                    lines.append(line)
        tables = tomllib.loads("".join(lines))
    except (OSError, ValueError, RecursionError) as error:
        raise DpflError(f"{path.name} cannot be read ({error}); it may be half written.") from None
    if not isinstance(tables.get("resolved"), dict):
        raise DpflError(f"{path.name} is not the record of a run, or is incomplete.")
    return tables


def last_row(folder: RunFolder, evaluated: bool = False) -> RoundRow | None:
    """Reads the last round of a run.

    Args:
        folder: The folder of the run.
        evaluated: Whether to read the last round that has a metric.

    Returns:
        The round; None if there is none.
    """
    names = ", ".join(RoundRow.__dataclass_fields__)
    condition = "WHERE coalesce(headline, accuracy) IS NOT NULL" if evaluated else ""
    sql = f"SELECT {names} FROM rounds {condition} ORDER BY round DESC LIMIT 1"
    try:
        rows = query(
            folder.file(METRICS),
            lambda connection: [RoundRow(*row) for row in connection.execute(sql)],
        )
    except DpflError:
        return None
    return rows[0] if rows else None
