"""The command line."""

from dpfl.cli.app import main

__all__ = ["main"]
