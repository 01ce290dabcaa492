"""Keys and signatures: Ed25519 over the canonical form of a JSON value.

A private key is a PEM file that only its user can read; its public key lies beside it (`.pub`).
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
    """Finds the user's key.

    Returns:
        The file that the variable DPFL_KEY names, or else `key.pem` in the user's configuration
        folder.
    """
    name = os.environ.get("DPFL_KEY")
    return Path(name).expanduser() if name else platformdirs.user_config_path("dpfl") / "key.pem"


def new_key(path: Path) -> str:
    """Creates a private key that only its user can read, and its public key beside it.

    Args:
        path: The file of the private key.

    Returns:
        The fingerprint of the public key.

    Raises:
        DpflError: One of the files exists, or cannot be written.
    """
    for file in (path, public_file(path)):
        if file.exists():
            raise DpflError(
                f"{file} already exists. Keys are never overwritten: choose another name."
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
            ) as handle:
                handle.write(content)
    except OSError as error:
        raise DpflError(
            f"The key {path} cannot be written ({error.strerror}); choose another folder."
        ) from error
    return fingerprint(public_key_hex(key.public_key()))


def public_file(path: Path) -> Path:
    """Names the file of a public key.

    Args:
        path: The file of the private key.

    Returns:
        The file of the public key.
    """
    return path.with_name(path.name + ".pub")


def _pem(key: Ed25519PublicKey) -> bytes:
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def load_private(path: Path | None) -> Ed25519PrivateKey:
    """Reads a private key.

    Args:
        path: The file; None for the user's own (`default_key`).

    Returns:
        The key.

    Raises:
        DpflError: The file is missing, is not an Ed25519 key, or can be read by others.
    """
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
    """Reads a public key.

    Args:
        path: The `.pub` file.

    Returns:
        The key in hexadecimal digits, as certificates and policies write it.

    Raises:
        DpflError: The file is missing, or is not an Ed25519 key.
    """
    try:
        key = load_pem_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise DpflError(
            f"The public key {path} cannot be read ({error}); give the .pub file that `dpfl key "
            "new` made."
        ) from error
    if not isinstance(key, Ed25519PublicKey):
        raise DpflError(f"The public key {path} is not an Ed25519 key.")
    return public_key_hex(key)


def public_key_hex(key: Ed25519PublicKey) -> str:
    """Writes a public key.

    Args:
        key: The key.

    Returns:
        Its 32 bytes in hexadecimal digits.
    """
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw).hex()


def fingerprint(public_key: str) -> str:
    """Computes the fingerprint that people compare instead of a whole key.

    Args:
        public_key: The key in hexadecimal digits.

    Returns:
        "sha256:" and the digest of its bytes.
    """
    return "sha256:" + hashlib.sha256(bytes.fromhex(public_key)).hexdigest()


def sign(value: Any, key: Ed25519PrivateKey) -> str:
    """Signs a value.

    Args:
        value: What JSON can hold.
        key: The signer's key.

    Returns:
        The signature of the value's canonical form, in hexadecimal digits.
    """
    return key.sign(canonical(value)).hex()


def is_signed(value: Any, signature: str, public_key: str) -> bool:
    """Verifies a signature.

    Args:
        value: What JSON can hold.
        signature: The signature in hexadecimal digits.
        public_key: The signer's key in hexadecimal digits.

    Returns:
        Whether the key signed the value's canonical form.
    """
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key)).verify(
            bytes.fromhex(signature), canonical(value)
        )
        return True
    except (InvalidSignature, ValueError):
        return False
