"""Where clients run."""

from dpfl.engines.local import Engine, local_engine, one_thread

__all__ = ["Engine", "local_engine", "one_thread"]
