"""`dpfl`: every user error is one sentence and exit code 2, and what nobody foresaw is one with
exit code 1. The file of a command is read when it is called."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from importlib import import_module
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from dpfl import __version__
from dpfl.errors import DpflError

PLUGIN = "entry point"

COMMANDS = {
    "data": ("data:app", "Data: get it, see who holds what."),
    "ledger": ("ledger:app", "Ledgers: what was spent, and what may be."),
    "key": ("certificate:key_app", "Keys that certificates are signed with."),
    "algorithms": (
        "algorithms",
        "List the systems, or show one: its options, its parts, and what is proven of it.",
    ),
    "plan": (
        "plan",
        "What a budget buys: iterations for epsilon, noise for epsilon, or epsilon for iterations.",
    ),
    "audit": (
        "audit",
        "Claimed, proven, and measured epsilon of a system: refuted, consistent, or not testable.",
    ),
    "reproduce": (PLUGIN, "Run a paper's table again, with its numbers beside ours."),
    "certify": (
        "certificate",
        "Sign what a run cost in privacy: a JSON file to verify, and a page to print beside it.",
    ),
    "verify": (
        "certificate",
        "Check a certificate: signature, every epsilon computed again, the run it is of, and the "
        "files beside it.",
    ),
    "run": ("run", "Run an experiment, or go on with one that was stopped."),
    "up": (
        "up",
        "A federation of real processes on this machine: a server and nodes, TLS, keys; taken down "
        "at the end.",
    ),
    "server": (
        "server:app",
        "The server of a federation: train over nodes that guard their own data.",
    ),
    "node": ("node:app", "A node that guards its own data."),
    "runs": ("runs", "List the runs of a folder."),
    "compare": ("runs", "Put runs side by side."),
    "ui": (
        "ui",
        "Look at runs in a browser: live curves and epsilon, comparisons, a planner, systems, "
        "ledgers, certificates.",
    ),
    "report": (
        "report",
        "One page that opens from disk, with every figure of a run or of several.",
    ),
}
"""The file of each (and the group in it), and what it does."""


class LazyCommandGroup(TyperGroup):
    """Commands that are known by a line until one of them is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)
        return name, load_command(str(name)), rest


def load_command(name: str) -> Any:
    """A command with its options, or a group of them."""
    file, _, group = COMMANDS[name][0].partition(":")
    found = (
        _plugin(name)
        if file == PLUGIN
        else getattr(import_module(f"dpfl.cli.{file}"), group or name)
    )
    if group:
        return typer.main.get_group(found)
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name)(found)
    return typer.main.get_command(alone)


def _plugin(name: str) -> Any:
    """Returns the function of a command that another installed package provides."""
    points = entry_points(group="dpfl.commands", name=name)
    if not points:
        raise DpflError(
            f"The package that provides `dpfl {name}` is not installed; install dpfl again."
        )
    return next(iter(points)).load()


app = typer.Typer(
    cls=LazyCommandGroup,
    help="Differentially private federated learning that says truthfully what it cost in privacy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for name, (_, line) in COMMANDS.items():
    app.command(name, help=line)(lambda: None)


def main() -> None:
    """What users bring by import path is found in the current folder, too, after everything that is
    installed.
    """
    if (here := os.getcwd()) not in sys.path:
        sys.path.append(here)
    try:
        if any("\0" in word for word in sys.argv):
            raise DpflError("A word of the command has a null character in it; leave it out.")
        app()
    except DpflError as error:
        _say(str(error))
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        _say(
            f"{str(error.filename or 'a file')[:80]!r} cannot be used ({error.strerror or error}); "
            "choose another place."
        )
        sys.exit(2)
    except Exception as error:
        if os.environ.get("DPFL_TRACEBACK"):
            raise
        cause = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        _say(
            f"something went wrong that nobody foresaw ({cause}); {_kept_traceback()}, please "
            "report it."
        )
        sys.exit(1)


def _say(sentence: str) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"dpfl: {sentence}", markup=False)


def _kept_traceback() -> str:
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="dpfl-traceback-", suffix=".txt", delete=False
        ) as file:
            traceback.print_exc(file=file)
        return f"the traceback is in {file.name}"
    except OSError:
        return "DPFL_TRACEBACK=1 shows the traceback"


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if show:
        print(__version__)
        raise typer.Exit
