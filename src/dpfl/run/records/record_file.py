"""The record of a run, `experiment.toml`: the settings that were asked for, the resolved settings,
and hashes.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpfl.codec import FORMAT
from dpfl.data.names import client_names
from dpfl.errors import DpflError
from dpfl.run.records.digests import record_id
from dpfl.run.records.format_1 import translate

NAME = "experiment.toml"
SECTIONS = ("run", "resolved", "hashes")
"""The sections that every record has."""


def read_record(path: Path) -> dict[str, Any]:
    """Reads the record of a run, whichever version wrote it.

    Args:
        path: The file, in the run's folder.

    Returns:
        The record, with its parts as this version writes them.

    Raises:
        DpflError: The file is no record of a run, or a newer version wrote it.
    """
    content = _read(path)
    if content.get("format", 1) == 1:
        return translate(content) | {"format": 1}  # type: ignore[no-any-return]
    if content["format"] != FORMAT:
        raise DpflError(
            f"{path.parent} was written by a newer dpfl (format {content['format']!r}): update "
            "dpfl to read it."
        )
    return content


def recorded_names(resolved_section: Mapping[str, Any]) -> tuple[str, ...]:
    """Reads the names of the clients.

    Args:
        resolved_section: The section `resolved` of the record.

    Returns:
        A name per client; default names where nobody gave any.
    """
    return tuple(
        resolved_section.get("names") or client_names(int(resolved_section.get("clients", 0)))
    )


def recorded_ledgers(resolved_section: Mapping[str, Any], own: Path) -> Path:
    """Reads where the ledgers of the run are.

    Args:
        resolved_section: The section `resolved` of the record.
        own: The folder of the run's own ledgers.

    Returns:
        The folder that other runs use as well, where one was given, else the run's own.
    """
    shared_folder = resolved_section.get("ledger")
    return Path(shared_folder) if shared_folder else own


def read_sealed_record(path: Path) -> dict[str, Any]:
    """Reads the record of a run, and checks that the run's debits were made under it.

    Args:
        path: The file, in the run's folder.

    Returns:
        The record, as `read_record` gives it.

    Raises:
        DpflError: The record was changed since, or its version did not seal it.
    """
    content = _read(path)
    if "nonce" not in content.get("run", {}):
        raise DpflError(
            f"The run in {path.parent} was made by an older version, which did not seal its "
            "record: it cannot be certified."
        )
    if record_id(content) != content.get("run", {}).get("id"):
        raise DpflError(
            f"{path} has changed since its run wrote it: the debits name another record; "
            "restore it from a copy."
        )
    return read_record(path)


def refuse_other_format(path: Path) -> None:
    """Refuses to resume a run of an earlier version.

    Args:
        path: The file, in the run's folder.

    Raises:
        DpflError: The run's releases were named by an earlier format, so a round that is made
            again would be another release, with other noise.
    """
    if read_record(path)["format"] != FORMAT:
        raise DpflError(
            f"The run in {path.parent} was made by dpfl 0.1, and this version cannot resume it. "
            "It can still read, compare, report and verify the run. Start a new run; give "
            "privacy.ledger the old ledgers to count what was spent."
        )


def _read(path: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise DpflError(f"{path} cannot be read ({error}); restore it from a copy.") from error
    if not all(isinstance(content.get(part), dict) for part in SECTIONS):
        raise DpflError(f"{path} is not the record of a run; restore it from a copy.")
    return content
