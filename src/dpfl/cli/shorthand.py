"""A group whose own word may be left out: `dpfl server experiment.toml` is `dpfl server run
experiment.toml`.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


class RunShorthandGroup(TyperGroup):
    """The command `run`, where the first word is none of the group's commands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        first = next(iter(args), "--help")
        if first not in self.commands and first != "--help":
            args = ["run", *args]
        return super().parse_args(ctx, args)
