"""The command line `dpfl`."""

import sys


def main() -> None:
    """Runs the command line; `dpfl --version` answers without importing typer."""
    if sys.argv[1:] == ["--version"]:
        from dpfl import __version__

        print(__version__)
        sys.exit()
    from dpfl.cli.app import main as commands

    commands()


__all__ = ["main"]
