"""Keys and signatures: Ed25519 over one written form of a JSON value. The private key stays with
the user.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import platformdirs
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from dpfl.codec import canonical
from dpfl.errors import DpflError


def default_key() -> Path:
    """The file of the variable DPFL_KEY, or else the one in the user's configuration folder."""
    chosen = os.environ.get("DPFL_KEY")
    return (
        Path(chosen).expanduser() if chosen else platformdirs.user_config_path("dpfl") / "key.pem"
    )


def new_key(path: Path) -> str:
    """Write a private key that only its user can read, and the public one beside it (.pub); say its
    fingerprint.
    """
    for file in (path, public_file(path)):
        if file.exists():
            raise DpflError(
                f"There is a file {file} already; a key is never overwritten, so choose another "
                "name."
            )
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for file, content, mode in (
            (path, private, 0o600),
            (public_file(path), _pem(key.public_key()), 0o644),
        ):
            with os.fdopen(
                os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb"
            ) as opened:
                opened.write(content)
    except OSError as error:
        raise DpflError(
            f"The key {path} cannot be written ({error.strerror}); choose another folder."
        ) from error
    return fingerprint(raw(key.public_key()))


def public_file(path: Path) -> Path:
    return path.with_name(path.name + ".pub")


def _pem(key: Ed25519PublicKey) -> bytes:
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def load_private(path: Path | None) -> Ed25519PrivateKey:
    path = path or default_key()
    try:
        if os.name == "posix" and path.stat().st_mode & 0o077:
            raise DpflError(
                f"Others can read the key {path}, so it proves nothing; run chmod 600 on it, or "
                "make a new one."
            )
        key = load_pem_private_key(path.read_bytes(), None)
    except FileNotFoundError:
        raise DpflError(
            f"There is no key {path} to sign with; make one with: dpfl key new {path}"
        ) from None
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise DpflError(
            f"The key {path} cannot be read ({error}); it must be one that `dpfl key new` made."
        ) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise DpflError(f"The key {path} is not an Ed25519 key; make one with: dpfl key new")
    return key


def load_public(path: Path) -> str:
    """The public key of a .pub file, as a certificate writes it."""
    try:
        key = load_pem_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise DpflError(
            f"The public key {path} cannot be read ({error}); give the .pub file that `dpfl key "
            "new` made."
        ) from error
    if not isinstance(key, Ed25519PublicKey):
        raise DpflError(f"The public key {path} is not an Ed25519 key.")
    return raw(key)


def raw(key: Ed25519PublicKey) -> str:
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw).hex()


def fingerprint(public_key: str) -> str:
    return "sha256:" + hashlib.sha256(bytes.fromhex(public_key)).hexdigest()


def sign(value: Any, key: Ed25519PrivateKey) -> str:
    return key.sign(canonical(value)).hex()


def is_signed(value: Any, signature: str, public_key: str) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key)).verify(
            bytes.fromhex(signature), canonical(value)
        )
        return True
    except (InvalidSignature, ValueError):
        return False
