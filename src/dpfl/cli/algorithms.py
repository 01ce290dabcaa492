"""The command `dpfl algorithms`: lists the systems, or describes one."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from dpfl.algorithms.catalog import describe_all, describe_one

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def algorithms(
    name: Annotated[
        str | None, typer.Argument(help="A system, to show its options and parts.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the systems, or show the options, parts and proven guarantee of one."""
    description = describe_one(name) if name else describe_all()
    if as_json:
        print(json.dumps(description))
    elif isinstance(description, list):
        Console().print(_table(description))
    else:
        _show(description, Console(highlight=False))


def _table(systems: list[dict[str, Any]]) -> Table:
    table = Table("system", "unit", "variant", "proven", "paper", box=box.SIMPLE_HEAD)
    for system in systems:
        head = (system["name"], system["unit"], system["paper"])
        for variant, proven in system["proven"].items():
            name, unit, paper = head
            table.add_row(name, unit, variant, proven, paper)
            head = ("", "", "")
    return table


def _show(system: dict[str, Any], console: Console) -> None:
    console.print(f"[bold]{system['name']}[/bold]  {system['paper']}", soft_wrap=True)
    console.print(f"\n{system['text']}\n", markup=False, soft_wrap=True)
    for variant, proven in system["proven"].items():
        console.print(f"{variant}: {proven}", markup=False, soft_wrap=True)
    options = Table("option", "type", "default", "meaning", box=box.SIMPLE_HEAD, pad_edge=False)
    for name, option in system["options"].items():
        default = "-" if option["default"] is None else str(option["default"])
        options.add_row(name, option["type"], default, option["meaning"])
    parts = Table("part", "is", box=box.SIMPLE_HEAD, pad_edge=False)
    for part, text in system["parts"].items():
        parts.add_row(part, text)
    for table in (options, parts):
        table.columns[0].no_wrap = True
        console.print(table)
