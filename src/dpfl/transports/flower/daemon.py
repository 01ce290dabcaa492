"""A node as its owner starts it (`dpfl node run POLICY`): a SuperNode, and the service that answers
what it gets.

On SIGTERM or Ctrl-C the letter at hand is answered first. What happens goes to the node's log, and
to whoever watches, where its policy names a port for that (`watch.py`): counts, times and epsilon,
and nothing of the data.
"""

from __future__ import annotations

import functools
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

from dpfl.errors import DpflError
from dpfl.node.policy import NodePolicy
from dpfl.node.service import Service
from dpfl.privacy import Ledger, accountant
from dpfl.privacy.ledger.client_ledgers import ledger_path
from dpfl.transports.flower.host import serve
from dpfl.transports.flower.parent import end_with_parent
from dpfl.transports.flower.processes import FlowerProcess, supernode, trusting
from dpfl.transports.flower.watch import MetricSample, MetricsEndpoint, alone


def run(policy: Path) -> None:
    """Until it is told to stop."""
    end_with_parent()
    with closing(Service.open(policy)) as service, stopping() as stop:
        charter = service.charter
        node, traffic = connected(charter), Traffic(service)

        def say(event: str, words: str) -> None:
            service.note(f"supernode {event}", words=words)
            if words:
                print(
                    f"{charter.name}: the SuperNode ended, and is started again: {words}",
                    file=sys.stderr,
                    flush=True,
                )

        port = charter.server.watch
        with (
            MetricsEndpoint(
                port, traffic.figures, lambda: "" if node.alive() else "the SuperNode is away"
            )
            if port
            else nullcontext()
        ):
            print(
                f"{charter.name}: letters of {charter.server.address} are answered; log: "
                f"{charter.folder / 'node.log'}",
                flush=True,
            )
            serve(node, traffic.answer, charter.allow.most_bytes, stop, say)


def connected(charter: NodePolicy) -> FlowerProcess:
    """The SuperNode of a policy, not yet started."""
    authority, key = charter.folder / charter.server.ca, charter.folder / charter.server.key
    if not key.exists():
        raise DpflError(
            f"There is no key {key} for Flower to let this node in by; `dpfl node init` makes one."
        )
    trusting(authority)
    return supernode(charter.folder / "supernode", charter.server.address, authority, key)


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Set by SIGTERM and Ctrl-C."""
    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Traffic:
    """What a service does, counted on the way."""

    def __init__(self, service: Service) -> None:
        self._service, self._charter = service, service.charter
        self._bytes: Counter[str] = Counter()
        self._seconds = 0.0

    def answer(self, letter: bytes) -> bytes:
        began = time.monotonic()
        answer = self._service.answer(letter)
        self._seconds += time.monotonic() - began
        self._bytes.update({'direction="in"': len(letter), 'direction="out"': len(answer)})
        return answer

    def figures(self) -> list[MetricSample]:
        counts = dict(self._service.counts)
        refused = {
            f'reason="{name.removeprefix("refused ")}"': n
            for name, n in counts.items()
            if name.startswith("refused ")
        }
        limit = self._charter.limit
        guarantee = (
            f'delta="{limit.delta:g}",unit="{self._charter.limits.unit}",'
            f'accountant="{limit.accountant}"'
        )
        spent = self._spent()
        return [
            alone("dpfl_letters_total", "counter", "Letters that came.", counts.get("letters", 0)),
            alone(
                "dpfl_releases_total",
                "counter",
                "Releases paid for since the start.",
                counts.get("releases", 0),
            ),
            MetricSample("dpfl_refusals_total", "counter", "Letters that were refused.", refused),
            MetricSample("dpfl_bytes_total", "counter", "Bytes of letters.", dict(self._bytes)),
            alone(
                "dpfl_answering_seconds_total", "counter", "Time spent on answers.", self._seconds
            ),
            MetricSample(
                "dpfl_epsilon_spent", "gauge", "By the ledger, of all runs.", {guarantee: spent}
            ),
            MetricSample(
                "dpfl_epsilon_left",
                "gauge",
                "Of the policy's epsilon in all.",
                {guarantee: max(0.0, limit.epsilon - spent)},
            ),
        ]

    def _spent(self) -> float:
        limit = self._charter.limit
        with closing(Ledger.read(ledger_path(self._charter.ledgers, self._charter.name))) as ledger:
            return _epsilon(limit.accountant, limit.delta, tuple(ledger.spending().items()))


@functools.lru_cache(maxsize=4)
def _epsilon(by: str, delta: float, spent: tuple) -> float:  # type: ignore[type-arg]
    """Whoever looks every few seconds has it computed once a release."""
    return accountant(by).epsilon(dict(spent), delta)
