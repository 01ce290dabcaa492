"""A process that ends when the one that started it does, however that ended: killed, too."""

from __future__ import annotations

import os
import signal
import threading
import time

VARIABLE = "DPFL_PARENT"
WATCH_SECONDS = 0.5
GRACE_SECONDS = 15.0


def named() -> dict[str, str]:
    """For the environment of a child that is to end with us."""
    return {VARIABLE: str(os.getpid())}


def end_with_parent() -> None:
    """By SIGTERM, and at once some time after that. Nothing where nobody asked for it."""
    if VARIABLE in os.environ:
        threading.Thread(target=_watch, args=(int(os.environ[VARIABLE]),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os._exit(1)
