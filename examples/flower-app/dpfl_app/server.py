"""The server, as dpfl has it."""

from dpfl.cli.flower_app import app

__all__ = ["app"]
