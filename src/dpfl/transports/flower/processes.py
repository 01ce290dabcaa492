"""Flower's own processes as children that never outlive us: a SuperLink at the server, a SuperNode
at a node.

    keys = server_keys(folder / "keys", hosts) with superlink(folder, "0.0.0.0", 9443, keys) as
    link:                    # TLS, node authentication, state in sqlite
        register(link.address, keys.authority, node_key(path), "hospital")    # by the node's public
        line; twice is once with supernode(elsewhere, link.address, keys.authority, path) as node:
            Executor(node.address, node.secret, answer, most).step()          # answers what the
            SuperNode got (see host.py)

Logs are files in the folder. `start` returns when the process answers, and raises with its last
words if it ends before. A SuperNode answers before the SuperLink has let it in: one that is refused
ends a moment later (`alive`, `words`).
"""

from __future__ import annotations

import os
import re
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import httpx
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key
from flwr.proto.control_pb2 import RegisterNodeRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

from dpfl.errors import DpflError
from dpfl.transports.flower import tls_keys as made
from dpfl.transports.flower.parent import named
from dpfl.transports.flower.tls_keys import ServerKeys

START_SECONDS = 300.0
STOP_SECONDS = 10.0
CALL_SECONDS = 60.0
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
"""Without these Flower's processes try to reach hosts outside."""
PASSED = re.compile(
    "PATH|HOME|LANG|LC_.*|TZ|TMPDIR|VIRTUAL_ENV|PYTHON.*|LD_LIBRARY_PATH|OMP_NUM_THREADS|SSL_CERT_.*|(https?|no|all)_proxy",
    re.I,
)
"""What of our own environment is theirs too; what an owner keeps there beside it, such as
passwords, is not.
"""


class FlowerProcess:
    """One of Flower's processes, and where it is reached from this machine."""

    def __init__(
        self, kind: str, folder: Path, host: str, port: int, arguments: Sequence[str], secret: Path
    ) -> None:
        self.kind, self.folder, self.arguments = kind, folder, arguments
        self.host, self.port = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port
        self.log = folder / f"{kind}.log"
        self.secret = secret.read_bytes()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """0 before its first start."""
        return self._process.pid if self._process else 0

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        self.launch()
        return self.ready()

    def launch(self) -> None:
        """Without waiting for it."""
        command = [sys.executable, "-m", "dpfl.transports.flower.child", self.kind, *self.arguments]
        environment = {
            **passed(os.environ),
            **QUIET,
            **named(),
            "FLWR_HOME": str(self.folder / "flwr"),
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def ready(self) -> Self:
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise
        return self

    def _wait(self) -> None:
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            if not self.alive():
                raise DpflError(
                    f"Flower's {self.kind} ended at once: {self.words()} (all of it is in "
                    f"{self.log})"
                )
            try:
                socket.create_connection((self.host, self.port), 1.0).close()
                return
            except OSError:
                time.sleep(0.05)
        raise DpflError(
            f"Flower's {self.kind} does not answer on {self.address} after {START_SECONDS:g} s; "
            f"see {self.log}."
        )

    def words(self) -> str:
        """Why it ended, or the last that it said, in one line."""
        _, found, reason = (
            self.log.read_bytes()[-8000:].decode(errors="replace").rpartition("Exit Code:")
        )
        lines = [
            line.strip()
            for line in reason.split("For more information")[0].splitlines()
            if line.strip()
        ]
        return " ".join(lines[1:] if found else lines[-3:])[:300] or "nothing was said"

    def stop(self) -> None:
        """Gracefully, and by force where that takes too long."""
        if self._process is None:
            return
        if self.alive():
            self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def passed(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if PASSED.fullmatch(name)}


def superlink(folder: Path, host: str, port: int, keys: ServerKeys) -> FlowerProcess:
    """What it knows of nodes, runs and messages is in the folder, and there again when it is
    started again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    arguments = [
        *("--host", host, "--port", str(port)),
        *(
            "--ssl-ca-certfile",
            str(keys.authority),
            "--ssl-certfile",
            str(keys.certificate),
            "--ssl-keyfile",
            str(keys.key),
        ),
        *("--enable-supernode-auth", "--database", str(folder / "superlink.sqlite")),
        *("--isolation", "process", "--superexec-auth-secret-file", str(keys.secret)),
    ]
    return FlowerProcess("superlink", folder, host, port, arguments, keys.secret)


def supernode(
    folder: Path, server: str, authority: Path, key: Path, port: int = 0
) -> FlowerProcess:
    """Connects to the server's address by the node's key; its executor finds it on loopback, by a
    secret of the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    secret = folder / "runtime.secret"
    made.secret(secret)
    port = port or free_port()
    arguments = [
        *(
            "--superlink",
            server,
            "--root-certificates",
            str(authority),
            "--auth-supernode-private-key",
            str(key),
        ),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--isolation", "process", "--superexec-auth-secret-file", str(secret)),
    ]
    return FlowerProcess("supernode", folder, "127.0.0.1", port, arguments, secret)


def register(server: str, authority: Path, public_line: str, name: str) -> None:
    """Let the node of that carrier key in. From the SuperLink's own machine only."""
    key = load_ssh_public_key(public_line.encode()).public_bytes(
        Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
    )
    with control(server, authority) as client:
        try:
            client.RegisterNode(RegisterNodeRequest(public_key=key, name=name))
        except httpx.HTTPStatusError as error:
            if "already in use" not in error.response.text:
                raise DpflError(
                    f"The SuperLink {server} does not let {name} in: {error.response.text[:200]}"
                ) from error
        except httpx.HTTPError as error:
            raise DpflError(f"The SuperLink {server} cannot be reached ({error}).") from error


def control(server: str, authority: Path) -> ControlHttpClient:
    """Of the interface that registers nodes and starts runs."""
    return ControlHttpClient(
        f"https://{server}",
        interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
        verify=trusting(authority),
        timeout=CALL_SECONDS,
    )


def trusting(authority: Path) -> ssl.SSLContext:
    """That authority, and none of the machine's own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cafile=str(authority))
    except OSError as error:
        raise DpflError(
            f"The certificate {authority} cannot be read ({error}); it is the server's ca.crt."
        ) from error
    return context


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
