"""The server app of dpfl."""

from dpfl.cli.flower_app import app

__all__ = ["app"]
