"""Monitoring of a node or a server: `/health`, and `/metrics` for Prometheus, on loopback.

    with MetricsEndpoint(9100, figures, trouble):
        ...

Both are answered in a thread of their own, which reads what another thread counts, and changes
nothing.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal, Self

from dpfl.errors import DpflError


@dataclass(frozen=True)
class MetricSample:
    """A number, or one number per label.

    Attributes:
        name: The name, such as `dpfl_refusals_total`.
        kind: "counter" or "gauge".
        meaning: What it counts.
        values: The number for each label, such as `reason="over-budget"`; one for the empty label.
    """

    name: str
    kind: Literal["counter", "gauge"]
    meaning: str
    values: Mapping[str, float]


def alone(name: str, kind: Literal["counter", "gauge"], meaning: str, value: float) -> MetricSample:
    """Makes a sample without labels.

    Args:
        name: The name.
        kind: "counter" or "gauge".
        meaning: What it counts.
        value: The number.

    Returns:
        The sample.
    """
    return MetricSample(name, kind, meaning, {"": value})


def text(figures: Sequence[MetricSample]) -> str:
    """Writes samples as Prometheus reads them (text format 0.0.4).

    Args:
        figures: The samples.

    Returns:
        The text.
    """
    lines = []
    for figure in figures:
        lines += [f"# HELP {figure.name} {figure.meaning}", f"# TYPE {figure.name} {figure.kind}"]
        for label, value in figure.values.items():
            lines.append(f"{figure.name}{'{' + label + '}' if label else ''} {value}")
    return "\n".join(lines) + "\n"


class MetricsEndpoint:
    """Serves `/health` and `/metrics` on a port of this machine.

    `trouble` says what is wrong, in words; all is well if it says nothing.
    """

    def __init__(
        self, port: int, figures: Callable[[], Sequence[MetricSample]], trouble: Callable[[], str]
    ) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/metrics":
                    self._say(200, "text/plain; version=0.0.4", text(figures()))
                elif self.path == "/health":
                    words = trouble()
                    self._say(
                        503 if words else 200,
                        "application/json",
                        json.dumps({"healthy": not words, "trouble": words}),
                    )
                else:
                    self._say(404, "text/plain", "")

            def _say(self, status: int, kind: str, body: str) -> None:
                content = body.encode()
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                return

        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        except OSError as error:
            raise DpflError(
                f"/health and /metrics cannot be served on port {port} ({error.strerror}); set "
                "server.watch to another port, or to 0 for none."
            ) from error
        self._server.daemon_threads = True

    @property
    def port(self) -> int:
        """The port that is served."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
