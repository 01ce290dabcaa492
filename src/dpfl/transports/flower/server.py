"""The server's machine: a SuperLink that is kept alive, the nodes that it lets in, and a transport
for a run over it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from dpfl.bad_values import wrong_value
from dpfl.errors import DpflError
from dpfl.protocol import keys
from dpfl.transports.flower.flower_messages import LIFE_SECONDS
from dpfl.transports.flower.flower_transport import FlowerTransport
from dpfl.transports.flower.processes import FlowerProcess, register, superlink
from dpfl.transports.flower.tls_keys import ServerKeys, server_keys

OWNER = "owner.pem"
HEADS = "heads.json"
"""The heads of ledgers that this server remembers."""
WATCH_SECONDS = 1.0
MOST_STARTS = 20
"""The most starts of a SuperLink. If it ends more often, another start does not help."""


@dataclass(frozen=True)
class NodeKeys:
    """The two public keys of a node.

    Attributes:
        message_key: The key that signs its messages.
        carrier: The key by which Flower lets it in, as OpenSSH writes it.
    """

    message_key: Ed25519PublicKey
    carrier: str

    @classmethod
    def parse(cls, name: str, line: str) -> NodeKeys:
        """Reads the line that `dpfl node init` prints.

        Args:
            name: The node's name, for errors.
            line: The first key in hexadecimal digits, then Flower's.

        Returns:
            The keys.

        Raises:
            DpflError: The line is incomplete.
        """
        own, _, carrier = line.strip().partition(" ")
        try:
            message_key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(own))
        except ValueError:
            raise DpflError(
                f"server.nodes.{name} is not the line that `dpfl node init` printed: copy it whole."
            ) from None
        if not carrier.startswith("ecdsa-sha2-"):
            raise DpflError(
                f"server.nodes.{name} lacks the second key of what `dpfl node init` printed: copy "
                "it whole."
            )
        return cls(message_key, carrier)


def new_server(folder: Path, hosts: tuple[str, ...]) -> tuple[ServerKeys, str]:
    """Creates a server's certificate, and the key that signs tasks. Files that exist are kept.

    Args:
        folder: The server's folder.
        hosts: The names and addresses by which nodes reach it.

    Returns:
        The files, and the public key of the run's owner.
    """
    tls_files = server_keys(folder, hosts)
    owner = folder / OWNER
    if not owner.exists():
        keys.new_key(owner)
    return tls_files, keys.load_public(keys.public_file(owner))


@contextmanager
def carry_messages(
    folder: Path, address: str, nodes: Mapping[str, NodeKeys], most: int, life: float = LIFE_SECONDS
) -> Iterator[FlowerTransport]:
    """Runs a SuperLink that lets some nodes in, and is started again if it ends.

    Args:
        folder: The server's folder.
        address: The host and port that it listens on.
        nodes: The keys of each node by name.
        most: The most bytes of an answer.
        life: After so many seconds, no node may take a message.

    Yields:
        The transport of a run.

    Raises:
        DpflError: The address is malformed, there is no server in the folder, or the SuperLink
            does not start.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 2**16:
        advice = "give a host and a port, such as 0.0.0.0:9092"
        raise wrong_value(address, "server.address", advice)
    tls_files = ServerKeys(folder)
    if not tls_files.certificate.exists():
        raise DpflError(f"There is no server in {folder}; make one with: dpfl server init {folder}")
    with superlink(folder, host.strip("[]"), int(port), tls_files) as link, _kept_alive(link):
        for name, node in nodes.items():
            register(link.address, tls_files.authority, node.carrier, name)
        secret = tls_files.secret.read_bytes()
        yield FlowerTransport(link.address, tls_files.authority, secret, most, life)


@contextmanager
def _kept_alive(child: FlowerProcess) -> Iterator[None]:
    end = threading.Event()

    def watch() -> None:
        for _ in range(MOST_STARTS):
            while child.alive():
                if end.wait(WATCH_SECONDS):
                    return
            if end.is_set():
                return
            try:
                child.start()
            except DpflError:
                end.wait(WATCH_SECONDS)

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        end.set()
        watching.join()
