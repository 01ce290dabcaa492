"""A node as its owner starts it (`dpfl node run POLICY`): a SuperNode, and the node's service.

On SIGTERM or Ctrl-C the message at hand is answered first. What happens is written to the node's
log. If the policy names a port, counts, times and epsilon can be watched there (`watch.py`), and
nothing of the data.
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


def run(policy_file: Path) -> None:
    """Runs a node until it is told to stop.

    Args:
        policy_file: The policy file.

    Raises:
        DpflError: Anything of the node's own is not as it should be.
    """
    end_with_parent()
    with closing(Service.open(policy_file)) as service, stopping() as stop:
        policy = service.policy
        node, traffic = prepare_supernode(policy), Traffic(service)

        def say(event: str, words: str) -> None:
            service.note(f"supernode {event}", words=words)
            if words:
                print(
                    f"{policy.name}: the SuperNode ended and is being restarted: {words}",
                    file=sys.stderr,
                    flush=True,
                )

        port = policy.server.watch
        with (
            MetricsEndpoint(
                port, traffic.figures, lambda: "" if node.alive() else "the SuperNode is away"
            )
            if port
            else nullcontext()
        ):
            print(
                f"{policy.name}: answering messages from {policy.server.address}; log: "
                f"{policy.folder / 'node.log'}",
                flush=True,
            )
            serve(node, traffic.answer, policy.allow.most_bytes, stop, say)


def prepare_supernode(policy: NodePolicy) -> FlowerProcess:
    """Prepares the SuperNode of a policy.

    Args:
        policy: The node's policy.

    Returns:
        The SuperNode, not yet started.

    Raises:
        DpflError: The node's key for Flower, or the server's certificate, is missing.
    """
    authority, key = policy.folder / policy.server.ca, policy.folder / policy.server.key
    if not key.exists():
        raise DpflError(
            f"There is no key {key}, by which Flower admits this node; `dpfl node init` makes one."
        )
    trusting(authority)
    return supernode(policy.folder / "supernode", policy.server.address, authority, key)


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Turns SIGTERM and Ctrl-C into an event.

    Yields:
        The event.
    """
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
    """Counts what a service does."""

    def __init__(self, service: Service) -> None:
        self._service, self._policy = service, service.policy
        self._bytes: Counter[str] = Counter()
        self._seconds = 0.0

    def answer(self, message: bytes) -> bytes:
        """Answers a message.

        Args:
            message: The bytes as they came.

        Returns:
            The service's answer.
        """
        start = time.monotonic()
        answer = self._service.answer(message)
        self._seconds += time.monotonic() - start
        self._bytes.update({'direction="in"': len(message), 'direction="out"': len(answer)})
        return answer

    def figures(self) -> list[MetricSample]:
        """Reads the node's figures. This may be called from any thread.

        Returns:
            Messages, releases, refusals, bytes, seconds, and epsilon.
        """
        counts = dict(self._service.counts)
        refusals = {
            f'reason="{name.removeprefix("refused ")}"': n
            for name, n in counts.items()
            if name.startswith("refused ")
        }
        limit = self._policy.limit
        guarantee = (
            f'delta="{limit.delta:g}",unit="{self._policy.limits.unit}",'
            f'accountant="{limit.accountant}"'
        )
        epsilon = self._epsilon()
        return [
            alone("dpfl_letters_total", "counter", "Messages received.", counts.get("letters", 0)),
            alone(
                "dpfl_releases_total",
                "counter",
                "Releases paid for since the start.",
                counts.get("releases", 0),
            ),
            MetricSample("dpfl_refusals_total", "counter", "Messages refused.", refusals),
            MetricSample("dpfl_bytes_total", "counter", "Bytes of messages.", dict(self._bytes)),
            alone(
                "dpfl_answering_seconds_total", "counter", "Time spent on answers.", self._seconds
            ),
            MetricSample(
                "dpfl_epsilon_spent", "gauge", "Epsilon spent, over all runs.", {guarantee: epsilon}
            ),
            MetricSample(
                "dpfl_epsilon_left",
                "gauge",
                "Epsilon left of the total that the policy allows.",
                {guarantee: max(0.0, limit.epsilon - epsilon)},
            ),
        ]

    def _epsilon(self) -> float:
        limit = self._policy.limit
        with closing(Ledger.read(ledger_path(self._policy.ledgers, self._policy.name))) as ledger:
            return _epsilon(limit.accountant, limit.delta, tuple(ledger.spending().items()))


@functools.lru_cache(maxsize=4)
def _epsilon(by: str, delta: float, spending: tuple) -> float:  # type: ignore[type-arg]
    """Computes epsilon, once per release however often somebody looks."""
    return accountant(by).epsilon(dict(spending), delta)
