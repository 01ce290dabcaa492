"""The keys by which Flower's processes know each other: an authority, a certificate of the server,
a key per node, and a shared secret.

These keep strangers off the wire and decide nothing about data: messages are signed with other keys
(`dpfl key new`). A file that exists is never overwritten.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
)
from cryptography.x509.oid import NameOID

from dpfl.errors import DpflError

YEARS = 3


@dataclass(frozen=True)
class ServerKeys:
    """The files of a SuperLink. Nodes get `authority` and nothing else.

    Attributes:
        folder: Where the files are.
    """

    folder: Path

    @property
    def authority(self) -> Path:
        """The certificate of the authority."""
        return self.folder / "ca.crt"

    @property
    def certificate(self) -> Path:
        """The certificate of the server."""
        return self.folder / "server.crt"

    @property
    def key(self) -> Path:
        """The private key of the server."""
        return self.folder / "server.key"

    @property
    def secret(self) -> Path:
        """The secret by which tasks are taken. Whoever has it can take the place of the server."""
        return self.folder / "runtime.secret"


def server_keys(folder: Path, hosts: Sequence[str] = ("localhost", "127.0.0.1")) -> ServerKeys:
    """Finds or creates the files of a SuperLink.

    Args:
        folder: Where they are.
        hosts: The names and addresses by which nodes reach the server.

    Returns:
        The files.

    Raises:
        DpflError: A file cannot be written.
    """
    keys = ServerKeys(folder)
    if not keys.certificate.exists():
        authority = ec.generate_private_key(ec.SECP256R1())
        issuer = _name("dpfl federation")
        root = _certificate(issuer, issuer, authority, authority, ()).public_bytes(Encoding.PEM)
        private = ec.generate_private_key(ec.SECP256R1())
        certificate = _certificate(
            _name("dpfl server"), issuer, private, authority, hosts
        ).public_bytes(Encoding.PEM)
        _write(folder / "ca.key", _pem(authority), 0o600)
        _write(keys.authority, root, 0o644)
        _write(keys.key, _pem(private), 0o600)
        _write(keys.certificate, certificate, 0o644)
    secret(keys.secret)
    return keys


def node_key(path: Path) -> str:
    """Finds or creates the key (P-384) by which a SuperLink lets a node in.

    Args:
        path: The file of the private key.

    Returns:
        The public key, as OpenSSH writes it.

    Raises:
        DpflError: The file cannot be read or written.
    """
    if not path.exists():
        new_key = ec.generate_private_key(ec.SECP384R1())
        content = new_key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        _write(path, content, 0o600)
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except (OSError, ValueError) as error:
        raise DpflError(
            f"The key {path} of this node cannot be read ({error}); move it away, and a new one is "
            "made."
        ) from error
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def secret(path: Path) -> bytes:
    """Finds or creates a shared secret.

    Args:
        path: The file.

    Returns:
        The secret.

    Raises:
        DpflError: The file cannot be written.
    """
    if not path.exists():
        _write(path, secrets.token_hex(32).encode(), 0o600)
    return path.read_bytes()


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    hosts: Sequence[str],
) -> x509.Certificate:
    """Makes the certificate of a server; without hosts, that of an authority."""
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=365 * YEARS))
        .add_extension(x509.BasicConstraints(ca=not hosts, path_length=None), critical=True)
    )
    if hosts:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False
        )
    return builder.sign(signer, hashes.SHA256())


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, content: bytes, mode: int) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
    except OSError as error:
        raise DpflError(
            f"The key {path} cannot be written ({error.strerror}); choose another folder."
        ) from error
