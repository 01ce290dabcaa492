"""Where clients run."""

from dpfl.engines.local import Engine, local_engine

__all__ = ["Engine", "local_engine"]
