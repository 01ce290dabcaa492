"""Hashes that say what a run was made of, without giving a record away.

A plain hash of private data is a release without noise: who knows all records but one can try candidates until it fits. So
whatever depends on the data is sealed with a salt (HMAC-SHA256) that stays in the run's folder and is in no certificate.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from dpfl.errors import DpflError
from dpfl.run.folder import RunFolder

SALT = "certificate.salt"
PRIVATE = ("federation", "train", "experiment.toml")
"""What depends on private data; the experiment as run holds the hashes of the data."""


def make_salt(folder: RunFolder) -> None:
    """Once a run; only its user can read it."""
    path = folder.file(SALT)
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
    except FileExistsError:
        return
    except OSError as error:
        raise DpflError(f"{path} cannot be written ({error.strerror}); mend the folder, then certify again.") from error


def sealed(folder: RunFolder, content: bytes) -> str:
    path = folder.file(SALT)
    try:
        salt = bytes.fromhex(path.read_text())
    except (OSError, ValueError) as error:
        raise DpflError(f"{path} cannot be read; bring it from where the run was certified.") from error
    return hmac.new(salt, content, "sha256").hexdigest()


def hashes(folder: RunFolder) -> dict[str, str]:
    """Of the data, the code that trained, the experiment as run, and the model as a file and as a vector."""
    files = {name: _file_sha256(folder.file(name)) for name in ("experiment.toml", "model.safetensors")}
    found = folder.experiment()["hashes"] | files | {"weights": folder.weights_sha256()}
    return found | {name: sealed(folder, found[name].encode()) for name in PRIVATE}


def _file_sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise DpflError(f"{path} cannot be read ({error.strerror}); restore it from a copy.") from error
