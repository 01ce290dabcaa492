"""The command that repeats a run, from the record in its folder."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import tomli_w

from dpfl.config.experiment import load, parse
from dpfl.errors import DpflError


def command(record: Mapping[str, Any]) -> str:
    """Writes the command that repeats a run.

    A run over nodes also needs the server's keys and the nodes, which the command does not contain.

    Args:
        record: The content of `experiment.toml` in the run's folder.

    Returns:
        `dpfl run` with `--set` where that says everything, and otherwise with the experiment as
        its input. "" for a run that was started from Python.
    """
    content = record.get("experiment")
    if not content:
        return ""
    program = "dpfl server run" if (content.get("server") or {}).get("nodes") else "dpfl run"
    try:
        experiment, demo = parse(content), load(None, _system_setting(content))
        settings = list(_settings(content, demo.model_dump(exclude_none=True)))
        if program == "dpfl run" and load(None, settings) == experiment:
            return " ".join([program, *(f"--set {shlex.quote(setting)}" for setting in settings)])
        file = experiment.model_dump(exclude_defaults=True, exclude_none=True)
    except DpflError:
        return ""
    return f"{program} /dev/stdin <<'END'\n{tomli_w.dumps(file)}END"


def _system_setting(content: Mapping[str, Any]) -> list[str]:
    """Names the system where it is not the demo's, which drops the options of the demo's system."""
    name = content.get("algorithm", {}).get("name")
    return [f"algorithm.name={name}"] if name and name != load(None).algorithm.name else []


def _settings(
    content: Mapping[str, Any], usual: Mapping[str, Any], place: str = ""
) -> Iterator[str]:
    if not place:
        yield from _system_setting(content)
    for key, value in content.items():
        name = f"{place}{key}"
        if isinstance(value, Mapping):
            yield from _settings(value, usual.get(key) or {}, f"{name}.")
        elif value != usual.get(key):
            yield f"{name}={tomli_w.dumps({'value': value}).partition('=')[2].strip()}"
