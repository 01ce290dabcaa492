"""For whoever watches a node or a server: `/health` and Prometheus' `/metrics`, on loopback.

    with Watch(9100, figures, healthy): ...

Both are asked for when somebody looks, in a thread of their own: they read what another thread
counts, and change nothing.
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
    """A number by its name, or one a label: `Figure("dpfl_refusals_total", "counter", "...",
    {'reason="over-budget"': 2})`.
    """

    name: str
    kind: Literal["counter", "gauge"]
    meaning: str
    values: Mapping[str, float]


def alone(name: str, kind: Literal["counter", "gauge"], meaning: str, value: float) -> MetricSample:
    return MetricSample(name, kind, meaning, {"": value})


def text(figures: Sequence[MetricSample]) -> str:
    """As Prometheus reads it (text format 0.0.4)."""
    lines = []
    for figure in figures:
        lines += [f"# HELP {figure.name} {figure.meaning}", f"# TYPE {figure.name} {figure.kind}"]
        for label, value in figure.values.items():
            lines.append(f"{figure.name}{'{' + label + '}' if label else ''} {value}")
    return "\n".join(lines) + "\n"


class MetricsEndpoint:
    """`healthy` is asked for words; without any, all is well."""

    def __init__(
        self, port: int, figures: Callable[[], Sequence[MetricSample]], healthy: Callable[[], str]
    ) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/metrics":
                    self._say(200, "text/plain; version=0.0.4", text(figures()))
                elif self.path == "/health":
                    trouble = healthy()
                    self._say(
                        503 if trouble else 200,
                        "application/json",
                        json.dumps({"healthy": not trouble, "trouble": trouble}),
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
                f"Nothing can be shown on port {port} ({error.strerror}); choose another, or 0 for "
                "none."
            ) from error
        self._server.daemon_threads = True

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
