"""A node that sends messages back.

It runs as `python -m tests.transports.flower.echo FOLDER SERVER AUTHORITY KEY`.

The letter `hold NAME` makes the file NAME.begun, and is answered when there is a file NAME.go. A
node that was told to stop lingers until there is a file `leave`. A node that waits for the rest of
a letter makes the file `waits`, and would wait for an hour.
"""

from __future__ import annotations

import functools
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from dpfl.transports.flower import flower_messages, host
from dpfl.transports.flower.parent import end_with_parent
from dpfl.transports.flower.processes import supernode
from tests.waits import wait_until

MOST = 5 << 20


class Time:
    """Stands in for the module `time` where a node sleeps."""

    monotonic, time = staticmethod(time.monotonic), staticmethod(time.time)

    def __init__(self, sleep: Callable[[float], object]) -> None:
        self.sleep = sleep


def answer(folder: Path, message: bytes) -> bytes:
    if message.startswith(b"hold "):
        name = message.split()[1].decode()
        (folder / f"{name}.begun").touch()
        wait_until((folder / f"{name}.go").exists)
    if message == b"fail":
        raise ValueError("something of the data")
    return message


def main(folder: str, server: str, authority: str, key: str) -> None:
    end_with_parent()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    place, flower_messages.PATIENCE_SECONDS = Path(folder), 3600.0
    host.time = Time(lambda seconds: seconds and wait_until((place / "leave").exists))  # type: ignore[assignment]
    flower_messages.time = Time(lambda seconds: ((place / "waits").touch(), time.sleep(seconds)))  # type: ignore[assignment]
    node = supernode(place, server, Path(authority), Path(key))
    host.serve(node, functools.partial(answer, place), MOST, stop)


if __name__ == "__main__":
    main(*sys.argv[1:])
