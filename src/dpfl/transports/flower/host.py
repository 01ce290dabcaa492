"""A node as one process: the executor, and a SuperNode as its child, started again when it ends.

    stop = threading.Event()
    node = supernode(folder, server, authority, key)
    serve(node, service.answer, most, stop)  # returns after the message at hand is answered

If this process is killed, its SuperNode leaves the federation about a second later, and the server
learns it. A message that was at hand is lost, and is answered when it is sent again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import httpx

from dpfl.transports.flower.executor import Answer, Executor
from dpfl.transports.flower.flower_messages import UnreadableMessage
from dpfl.transports.flower.processes import FlowerProcess

FIRST_NAP, LAST_NAP = 0.02, 0.2
FIRST_PAUSE, LAST_PAUSE = 0.5, 10.0
SETTLED_SECONDS = 30.0
LINGER_SECONDS = 3.0
"""How long to stay after an answer: when a node leaves, the SuperLink drops what it has not handed
over yet.
"""

Say = Callable[[str, str], None]


def serve(
    node: FlowerProcess,
    answer: Answer,
    most: int,
    stop: threading.Event,
    say: Say = lambda event, words: None,
) -> None:
    """Answers messages until it is told to stop.

    Args:
        node: The SuperNode, not yet started.
        answer: Answers a message.
        most: The most bytes of a message.
        stop: Set to stop after the message at hand.
        say: Is told what happened to the SuperNode, and its last words.
    """
    executor = Executor(node.address, node.secret, answer, most, stop.is_set)
    try:
        last = _serve(node, executor, stop, say)
        time.sleep(max(0.0, last + LINGER_SECONDS - time.monotonic()))
    finally:
        node.stop()
        executor.close()


def _serve(node: FlowerProcess, executor: Executor, stop: threading.Event, say: Say) -> float:
    """Serves until `stop`, and returns when the last message was answered."""
    pause, nap, start_time, last = FIRST_PAUSE, FIRST_NAP, time.monotonic(), -LINGER_SECONDS
    node.launch()
    say("started", "")
    while not stop.is_set():
        if not node.alive():
            pause = (
                FIRST_PAUSE
                if time.monotonic() - start_time > SETTLED_SECONDS
                else min(LAST_PAUSE, 2 * pause)
            )
            say("ended", node.words())
            if stop.wait(pause):
                break
            start_time = time.monotonic()
            node.launch()
            say("started", "")
        try:
            if executor.step():
                nap, last = FIRST_NAP, time.monotonic()
            else:
                nap = min(LAST_NAP, nap * 1.2)
        except (httpx.HTTPError, UnreadableMessage):
            nap = LAST_NAP
        stop.wait(nap)
    return last
