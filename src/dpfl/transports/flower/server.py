"""The server's machine: a SuperLink that is kept alive, the nodes that it lets in, and the post of
a run over it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from dpfl.errors import DpflError
from dpfl.protocol import keys
from dpfl.transports.flower.flower_messages import LIFE_SECONDS
from dpfl.transports.flower.flower_transport import FlowerTransport
from dpfl.transports.flower.processes import FlowerProcess, register, superlink
from dpfl.transports.flower.tls_keys import ServerKeys, server_keys

OWNER = "owner.pem"
HEADS = "heads.json"
"""What nodes signed, as far as this server remembers."""
WATCH_SECONDS = 1.0
MOST_STARTS = 20
"""A SuperLink that ends more often is not to be helped by another start."""


@dataclass(frozen=True)
class NodeKeys:
    """A node by its two public keys: the one that its letters are signed with, and the one that
    Flower lets it in by.
    """

    letters: Ed25519PublicKey
    carrier: str

    @classmethod
    def parse(cls, name: str, line: str) -> NodeKeys:
        """The line that `dpfl node init` prints: the first key in hexadecimal digits, then Flower's
        as OpenSSH writes it.
        """
        own, _, carrier = line.strip().partition(" ")
        try:
            letters = Ed25519PublicKey.from_public_bytes(bytes.fromhex(own))
        except ValueError:
            raise DpflError(
                f"server.nodes.{name} is not the line that `dpfl node init` printed: copy it whole."
            ) from None
        if not carrier.startswith("ecdsa-sha2-"):
            raise DpflError(
                f"server.nodes.{name} lacks the second key of what `dpfl node init` printed: copy "
                "it whole."
            )
        return cls(letters, carrier)


def new_server(folder: Path, hosts: tuple[str, ...]) -> tuple[ServerKeys, str]:
    """Its certificate, for the names that nodes reach it by, and the key that signs orders; says
    the public half of it.
    """
    made = server_keys(folder, hosts)
    owner = folder / OWNER
    if not owner.exists():
        keys.new_key(owner)
    return made, keys.load_public(keys.public_file(owner))


@contextmanager
def carried(
    folder: Path, address: str, nodes: Mapping[str, NodeKeys], most: int, life: float = LIFE_SECONDS
) -> Iterator[FlowerTransport]:
    """The post of a run, over a SuperLink that lets these nodes in and is started again where it
    ends.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 2**16:
        raise DpflError(
            f"server.address is {address!r}: give a host and a port, such as 0.0.0.0:9092."
        )
    made = ServerKeys(folder)
    if not made.certificate.exists():
        raise DpflError(f"There is no server in {folder}; make one with: dpfl server init {folder}")
    with superlink(folder, host.strip("[]"), int(port), made) as link, _kept_alive(link):
        for name, node in nodes.items():
            register(link.address, made.authority, node.carrier, name)
        yield FlowerTransport(link.address, made.authority, made.secret.read_bytes(), most, life)


@contextmanager
def _kept_alive(child: FlowerProcess) -> Iterator[None]:
    done = threading.Event()

    def watch() -> None:
        for _ in range(MOST_STARTS):
            while child.alive():
                if done.wait(WATCH_SECONDS):
                    return
            if done.is_set():
                return
            try:
                child.start()
            except DpflError:
                done.wait(WATCH_SECONDS)

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        done.set()
        watching.join()
