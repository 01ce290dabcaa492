"""Flower's own processes as children that never outlive us: a SuperLink at the server, a SuperNode
at a node.

    keys = server_keys(folder / "keys", hosts)
    with superlink(folder, "0.0.0.0", 9443, keys) as link:
        register(link.address, keys.authority, node_key(path), "hospital")
        with supernode(elsewhere, link.address, keys.authority, path) as node:
            Executor(node.address, node.secret, answer, most).step()

Logs are files in the folder. `start` returns when the process answers, and raises with its last
words if it ends before that. A SuperNode answers before the SuperLink has let it in: one that is
refused ends a moment later (`alive`, `words`).
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
from dpfl.transports.flower import tls_keys
from dpfl.transports.flower.parent import parent_variable
from dpfl.transports.flower.tls_keys import ServerKeys

START_SECONDS = 300.0
STOP_SECONDS = 10.0
CALL_SECONDS = 60.0
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
"""Without these, Flower's processes try to reach hosts on the internet."""
ENVIRONMENT = re.compile(
    "PATH|HOME|LANG|LC_.*|TZ|TMPDIR|VIRTUAL_ENV|PYTHON.*|LD_LIBRARY_PATH|OMP_NUM_THREADS|SSL_CERT_.*|(https?|no|all)_proxy",
    re.I,
)
"""The variables of our environment that Flower's processes get. Whatever else an owner keeps there,
such as passwords, they do not get.
"""


class FlowerProcess:
    """One of Flower's processes, and how it is reached from this machine."""

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
        """Host and port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """The process id; 0 before its first start."""
        return self._process.pid if self._process else 0

    def alive(self) -> bool:
        """Decides whether the process runs.

        Returns:
            Whether it was started and has not ended.
        """
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Starts the process, and waits until it answers.

        Returns:
            This object.

        Raises:
            DpflError: The process ended, or does not answer.
        """
        self.launch()
        return self.ready()

    def launch(self) -> None:
        """Starts the process without waiting for it."""
        command = [sys.executable, "-m", "dpfl.transports.flower.child", self.kind, *self.arguments]
        environment = {
            **select_variables(os.environ),
            **QUIET,
            **parent_variable(),
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
        """Waits until the process answers.

        Returns:
            This object.

        Raises:
            DpflError: The process ended, or does not answer.
        """
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
        """Reads why the process ended.

        Returns:
            Its reason, or the last lines of its log, in one line.
        """
        end = self.log.read_bytes()[-8000:].decode(errors="replace")
        _, has_reason, reason = end.rpartition("Exit Code:")
        lines = [
            line.strip()
            for line in reason.split("For more information")[0].splitlines()
            if line.strip()
        ]
        return " ".join(lines[1:] if has_reason else lines[-3:])[:300] or "nothing was said"

    def stop(self) -> None:
        """Ends the process gracefully, or by force if that takes too long."""
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


def select_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Chooses the variables that Flower's processes get.

    Args:
        environment: Our environment.

    Returns:
        The part of it that they get.
    """
    return {name: value for name, value in environment.items() if ENVIRONMENT.fullmatch(name)}


def superlink(folder: Path, host: str, port: int, keys: ServerKeys) -> FlowerProcess:
    """Prepares a SuperLink: TLS, node authentication, state in SQLite.

    Args:
        folder: Its folder. What it knows of nodes, runs and messages is there, and survives a
            restart.
        host: The address that it listens on.
        port: Its port.
        keys: Its keys.

    Returns:
        The SuperLink, not yet started.
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
    """Prepares a SuperNode. Its executor finds it on loopback, by a secret in the folder.

    Args:
        folder: Its folder.
        server: The address of the SuperLink.
        authority: The certificate of the SuperLink's authority.
        key: The key by which the SuperLink lets the node in.
        port: Its port; 0 for a free one.

    Returns:
        The SuperNode, not yet started.
    """
    folder.mkdir(parents=True, exist_ok=True)
    secret = folder / "runtime.secret"
    tls_keys.secret(secret)
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
    """Lets a node in. This is possible from the SuperLink's own machine only; twice is once.

    Args:
        server: The address of the SuperLink.
        authority: The certificate of its authority.
        public_line: The node's public key for Flower, as OpenSSH writes it.
        name: The node's name.

    Raises:
        DpflError: The SuperLink refuses, or cannot be reached.
    """
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
    """Creates a client of the interface that registers nodes and starts runs.

    Args:
        server: The address of the SuperLink.
        authority: The certificate of its authority.

    Returns:
        The client.
    """
    return ControlHttpClient(
        f"https://{server}",
        interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
        verify=trusting(authority),
        timeout=CALL_SECONDS,
    )


def trusting(authority: Path) -> ssl.SSLContext:
    """Trusts one authority, and none of the machine's own.

    Args:
        authority: The certificate of the authority.

    Returns:
        A TLS context for clients.

    Raises:
        DpflError: The certificate cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cafile=str(authority))
    except OSError as error:
        raise DpflError(
            f"The certificate {authority} cannot be read ({error}); it is the server's ca.crt."
        ) from error
    return context


def free_port() -> int:
    """Finds a port of this machine that nobody uses now.

    Returns:
        The port.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
