"""A node that sends letters back: `python -m tests.flower.echo FOLDER SERVER AUTHORITY KEY`. `wait 3` is answered after 3 s."""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path

from dpfl.flower.host import serve
from dpfl.flower.parent import end_with_parent
from dpfl.flower.processes import supernode

MOST = 5 << 20


def answer(letter: bytes) -> bytes:
    if letter.startswith(b"wait "):
        time.sleep(float(letter.split()[1]))
    if letter == b"fail":
        raise ValueError("something of the data")
    return letter


def main(folder: str, server: str, authority: str, key: str) -> None:
    end_with_parent()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    serve(supernode(Path(folder), server, Path(authority), Path(key)), answer, MOST, stop)


if __name__ == "__main__":
    main(*sys.argv[1:])
