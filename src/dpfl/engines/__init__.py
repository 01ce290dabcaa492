"""Where clients run."""

from dpfl.engines.local import Engine, local

__all__ = ["Engine", "local"]
