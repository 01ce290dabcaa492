"""Lets a process end when the process that started it ends, even if that one was killed."""

from __future__ import annotations

import os
import signal
import threading
import time

VARIABLE = "DPFL_PARENT"
WATCH_SECONDS = 0.5
GRACE_SECONDS = 15.0


def parent_variable() -> dict[str, str]:
    """Returns the variable that names us as the parent of a child, which is to end with us.

    Returns:
        The variable to add to the child's environment.
    """
    return {VARIABLE: str(os.getpid())}


def end_with_parent() -> None:
    """Ends this process when its parent has ended: by SIGTERM, and by force some time later.

    Without the parent's name in the environment this does nothing.
    """
    if VARIABLE in os.environ:
        threading.Thread(target=_watch, args=(int(os.environ[VARIABLE]),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os._exit(1)
