"""A process that ends with its parent."""

from __future__ import annotations

import os
import subprocess
import sys

from dpfl.transports.flower.parent import parent_variable
from tests.conftest import PATIENCE, wait_until


def test_a_child_ends_with_its_parent() -> None:
    watching = (
        "import time; from dpfl.transports.flower.parent import end_with_parent; "
        "end_with_parent(); print('on', flush=True); time.sleep(3600)"
    )
    parent = (
        "import os, subprocess, sys; from dpfl.transports.flower.parent import parent_variable\n"
        f"child = subprocess.Popen([sys.executable, '-c', {watching!r}],\n"
        "    env={**os.environ, **parent_variable()}, stdout=subprocess.PIPE)\n"
        "child.stdout.readline(); print(child.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run(
        [sys.executable, "-c", parent],
        env={**os.environ, **parent_variable()},
        capture_output=True,
        timeout=PATIENCE,
    )
    child = int(done.stdout)
    wait_until(lambda: not _runs(child))


def _runs(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
