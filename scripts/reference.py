"""Writes docs/reference.md and docs/commands.md from the code: keys, options, columns, files and
commands, a line each.
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
    """Every key of an experiment by its dotted name, with type and default."""
    found: dict[str, tuple[str, object]] = {}
    for name, field in Experiment.model_fields.items():
        section = getattr(field.annotation, "model_fields", None)
        for key, inner in section.items() if section else [("", field)]:
            kind = getattr(inner.annotation, "__name__", str(inner.annotation)).replace(
                " | None", ""
            )
            default = inner.get_default(call_default_factory=True)
            found[f"{name}.{key}" if key else name] = (kind, default)
    return found


def commands() -> str:
    """Every command with its arguments and options, as `--help` has them."""
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
        called = f"`{option.make_metavar(_Words())}`"
    elif option.opts == ["--help"] or getattr(option, "hidden", False):
        return None
    else:
        called = f"`{', '.join(option.opts)}`"
    default = option.default
    known = "" if default is None or default is False or callable(default) else f"`{default}`"
    return (
        called,
        "" if getattr(option, "is_flag", False) else option.type.name,
        known,
        " ".join((getattr(option, "help", "") or "").split()),
    )


class _Words:
    """All that a metavar asks of a context."""

    show_default = False
    allow_interspersed_args = True


def main() -> None:
    (DOCS / "reference.md").write_text(page(keys()))
    (DOCS / "commands.md").write_text(commands())


if __name__ == "__main__":
    main()
