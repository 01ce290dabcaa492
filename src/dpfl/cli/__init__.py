"""The command line."""

import sys


def main() -> None:
    """Whoever asks for the version alone need not wait for a command line to be put together."""
    if sys.argv[1:] == ["--version"]:
        from dpfl import __version__

        print(__version__)
        sys.exit()
    from dpfl.cli.app import main as commands

    commands()


__all__ = ["main"]
