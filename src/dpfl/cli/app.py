"""The command `dpfl`: lists its commands, imports one when it is called, and prints errors.

An error that a user can mend is one sentence with exit code 2. An error in dpfl itself is one
sentence with exit code 1, and its traceback goes to a file.
"""

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
from typer.utils import get_params_from_function

from dpfl import __version__
from dpfl.errors import DpflError

PLUGIN = "entry point"

COMMANDS = {
    "run": ("run", "Run an experiment, or resume one that was stopped."),
    "runs": ("runs", "List the runs in a folder."),
    "compare": ("runs", "Compare runs side by side."),
    "report": ("report", "Write one HTML page with every figure of one or more runs."),
    "ui": (
        "ui",
        "Open a folder of runs in a browser, with live curves, comparisons and a planner.",
    ),
    "algorithms": (
        "algorithms",
        "List the systems, or show the options, parts and proven guarantee of one.",
    ),
    "plan": (
        "plan",
        "Plan a budget: find the iterations, the noise or the epsilon from the other two.",
    ),
    "data": ("data:app", "Download data sets, describe tables, and show how clients share data."),
    "ledger": ("ledger:app", "Show, check and limit what a data owner has spent."),
    "audit": (
        "audit",
        "Attack a system and compare the measured epsilon with the claimed and the proven one.",
    ),
    "certify": (
        "certificate",
        "Sign the privacy cost of a run: a JSON certificate to verify, and a page to print.",
    ),
    "verify": (
        "certificate",
        "Check a certificate: its signature, every epsilon, its run, and the files beside it.",
    ),
    "key": ("certificate:key_app", "Make keys that sign certificates."),
    "server": (
        "server:app",
        "Run the server of a federation, whose nodes guard their own data.",
    ),
    "node": ("node:app", "Run a node, which guards its own data and enforces its own budget."),
    "up": (
        "up",
        "Run a whole federation on this machine: a server and nodes as real processes with TLS.",
    ),
    "reproduce": (PLUGIN, "Reproduce the tables and figures of a paper, beside its own numbers."),
}
"""The module and the line of help of each command, as `dpfl --help` lists them.

`module:group` names a group of commands within the module.
"""


class LazyCommandGroup(TyperGroup):
    """A group that imports a command only when it is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Imports the command of the first word.

        Args:
            ctx: The context of click.
            args: The words of the command line.

        Returns:
            The name of the command, the command, and the other words.
        """
        name, _, rest = super().resolve_command(ctx, args)
        return name, load_command(str(name)), rest


def load_command(name: str) -> Any:
    """Imports a command, or a group of commands, with its options.

    Args:
        name: A key of `COMMANDS`.

    Returns:
        The command as click has it.

    Raises:
        DpflError: The package that provides the command is not installed.
    """
    file, _, group = COMMANDS[name][0].partition(":")
    if group:
        commands = getattr(import_module(f"dpfl.cli.{file}"), group)
        return _with_argument_help(typer.main.get_group(commands))
    function = _plugin(name) if file == PLUGIN else getattr(import_module(f"dpfl.cli.{file}"), name)
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    single.command(name)(function)
    return _with_argument_help(typer.main.get_command(single))


def _with_argument_help(command: Any) -> Any:
    """Restores the help of arguments, which click 8.5 clears after typer has set it."""
    for inner in getattr(command, "commands", {}).values():
        _with_argument_help(inner)
    parameters = get_params_from_function(command.callback) if command.callback else {}
    for parameter in command.params:
        if parameter.name in parameters and getattr(parameter, "help", "") is None:
            parameter.help = getattr(parameters[parameter.name].default, "help", None)
    return command


def _plugin(name: str) -> Any:
    """Loads the function of a command that another installed package provides."""
    points = entry_points(group="dpfl.commands", name=name)
    if not points:
        raise DpflError(
            f"The package that provides `dpfl {name}` is not installed; install dpfl again."
        )
    return next(iter(points)).load()


app = typer.Typer(
    cls=LazyCommandGroup,
    help="Differentially private federated learning with a proven privacy cost.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for name, (_, line) in COMMANDS.items():
    app.command(name, help=line)(lambda: None)


def main() -> None:
    """Runs the command line; import paths may name modules in the current folder."""
    if (here := os.getcwd()) not in sys.path:
        sys.path.append(here)
    try:
        if any("\0" in word for word in sys.argv):
            raise DpflError("The command contains a null character; remove it.")
        app()
    except DpflError as error:
        _print_error(str(error))
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        _print_error(
            f"{str(error.filename or 'a file')[:80]!r} cannot be used ({error.strerror or error}); "
            "choose another path."
        )
        sys.exit(2)
    except Exception as error:
        if os.environ.get("DPFL_TRACEBACK"):
            raise
        cause = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        _print_error(f"internal error ({cause}). {_traceback_hint()} Please report it.")
        sys.exit(1)


def _print_error(sentence: str) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"dpfl: {sentence}", markup=False)


def _traceback_hint() -> str:
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="dpfl-traceback-", suffix=".txt", delete=False
        ) as file:
            traceback.print_exc(file=file)
        return f"The traceback is in {file.name}."
    except OSError:
        return "Set DPFL_TRACEBACK=1 to see the traceback."


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Prints the version where it is asked for."""
    if show:
        print(__version__)
        raise typer.Exit
