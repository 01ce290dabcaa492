"""The command that repeats a run, from the record in its folder."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import tomli_w

from dpfl.config.experiment import load, parse
from dpfl.errors import DpflError


def command(record: Mapping[str, Any]) -> str:
    """With --set where that says all of it, else with the experiment itself; nothing for a run that
    Python started.

    What a run over nodes needs beside it, its keys and nodes, is where it was.
    """
    asked = record.get("experiment")
    if not asked:
        return ""
    program = "dpfl server run" if (asked.get("server") or {}).get("nodes") else "dpfl run"
    try:
        wanted = parse(asked)
        settings = list(_settings(asked, load(None, _named(asked)).model_dump(exclude_none=True)))
        if program == "dpfl run" and load(None, settings) == wanted:
            return " ".join([program, *(f"--set {shlex.quote(setting)}" for setting in settings)])
        content = wanted.model_dump(exclude_defaults=True, exclude_none=True)
    except DpflError:
        return ""
    return f"{program} /dev/stdin <<'END'\n{tomli_w.dumps(content)}END"


def _named(asked: Mapping[str, Any]) -> list[str]:
    """Options of the demo's own system go where another is asked for."""
    name = asked.get("algorithm", {}).get("name")
    return [f"algorithm.name={name}"] if name and name != load(None).algorithm.name else []


def _settings(asked: Mapping[str, Any], usual: Mapping[str, Any], place: str = "") -> Iterator[str]:
    if not place:
        yield from _named(asked)
    for key, value in asked.items():
        name = f"{place}{key}"
        if isinstance(value, Mapping):
            yield from _settings(value, usual.get(key) or {}, f"{name}.")
        elif value != usual.get(key):
            yield f"{name}={tomli_w.dumps({'value': value}).partition('=')[2].strip()}"
