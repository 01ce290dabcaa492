"""Writes docs/reference.md and docs/commands.md from the code: one line for every key, option,
column, file and command.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpfl.cli.app import COMMANDS, load_command
from dpfl.config.experiment import Experiment
from dpfl.views.reference import page, table

DOCS = Path(__file__).parents[1] / "docs"


def keys() -> dict[str, tuple[str, object]]:
    """Returns every key of an experiment by its dotted name, with type and default."""
    rows: dict[str, tuple[str, object]] = {}
    for name, field in Experiment.model_fields.items():
        section = getattr(field.annotation, "model_fields", None)
        for key, inner in section.items() if section else [("", field)]:
            kind = getattr(inner.annotation, "__name__", str(inner.annotation)).replace(
                " | None", ""
            )
            default = inner.get_default(call_default_factory=True)
            rows[f"{name}.{key}" if key else name] = (kind, default)
    return rows


def commands() -> str:
    """Returns a page of all commands with the arguments and options of `--help`."""
    parts = [line for name in COMMANDS for line in _command(f"dpfl {name}", load_command(name))]
    head = [
        "# Commands",
        "",
        "Made from the code by `python scripts/reference.py`; `dpfl COMMAND --help` says the same.",
        "",
    ]
    return "\n".join([*head, *parts]).rstrip() + "\n"


def _command(name: str, command: Any) -> Iterator[str]:
    inner = getattr(command, "commands", {})
    yield f"## `{name}`" if name.count(" ") == 1 else f"### `{name}`"
    yield f"\n{' '.join((command.help or '').split())}\n"
    rows = [row for option in command.params if (row := _parameter(option))]
    if rows and not inner:
        yield from table(("", "type", "default", "meaning"), rows)
        yield ""
    for word, sub in inner.items():
        yield from _command(f"{name} {word}", sub)


def _parameter(option: Any) -> tuple[str, str, str, str] | None:
    if option.param_type_name == "argument":
        name = f"`{option.make_metavar(_MetavarContext())}`"
    elif option.opts == ["--help"] or getattr(option, "hidden", False):
        return None
    else:
        name = f"`{', '.join(option.opts)}`"
    default = option.default
    default_text = (
        "" if default is None or default is False or callable(default) else f"`{default}`"
    )
    return (
        name,
        "" if getattr(option, "is_flag", False) else option.type.name,
        default_text,
        " ".join((getattr(option, "help", "") or "").split()),
    )


class _MetavarContext:
    """The attributes of a context that a metavar uses."""

    show_default = False
    allow_interspersed_args = True


def main() -> None:
    """Writes both pages."""
    (DOCS / "reference.md").write_text(page(keys()))
    (DOCS / "commands.md").write_text(commands())


if __name__ == "__main__":
    main()
