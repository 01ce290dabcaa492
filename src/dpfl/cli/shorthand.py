"""A group of commands whose word `run` may be left out.

`dpfl server experiment.toml` means `dpfl server run experiment.toml`.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


class RunShorthandGroup(TyperGroup):
    """A group that runs its command `run` where the first word is not one of its commands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Adds the word `run` where it was left out.

        Args:
            ctx: The context of click.
            args: The words of the command line.

        Returns:
            The words that are left after parsing.
        """
        first = next(iter(args), "--help")
        if first not in self.commands and first != "--help":
            args = ["run", *args]
        return super().parse_args(ctx, args)
