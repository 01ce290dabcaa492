"""Hashes that identify the files and the data of a run without revealing a record.

A plain hash of private data is a release without noise: somebody who knows all records but one can
try candidates until the hash fits. So everything that depends on the data is sealed by HMAC-SHA256
with a salt. The salt stays in the folder of the run and is in no certificate.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpfl.certificate.reading import own_card, read
from dpfl.codec import canonical
from dpfl.data.remote_federation import NODES
from dpfl.errors import DpflError
from dpfl.protocol.keys import fingerprint
from dpfl.run.records.folder import RunFolder
from dpfl.run.records.model_card import NAME
from dpfl.run.records.record_file import recorded_names

SALT = "certificate.salt"
KEY_OF, NODES_RUN = "key of ", "run of nodes"
"""Names of the hashes that say which nodes took part, and in which run."""
PRIVATE = ("federation", "train", "experiment.toml")
"""Depends on private data; `experiment.toml` contains the hashes of the data."""


def make_salt(folder: RunFolder) -> None:
    """Writes the salt of a run once, readable by its user only.

    Args:
        folder: The folder of the run.

    Raises:
        DpflError: The folder cannot be written.
    """
    path = folder.file(SALT)
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
    except FileExistsError:
        return
    except OSError as error:
        raise DpflError(
            f"{path} cannot be written ({error.strerror}); repair the folder, then certify again."
        ) from error


def seal(folder: RunFolder, content: bytes) -> str:
    """Hashes content with the salt of a run.

    Args:
        folder: The folder of the run, which has the salt.
        content: What depends on private data.

    Returns:
        HMAC-SHA256 in hexadecimal digits.

    Raises:
        DpflError: There is no salt.
    """
    path = folder.file(SALT)
    try:
        salt = bytes.fromhex(path.read_text())
    except (OSError, ValueError) as error:
        raise DpflError(
            f"{path} cannot be read; copy it from where the run was certified."
        ) from error
    return hmac.new(salt, content, "sha256").hexdigest()


def hashes(folder: RunFolder) -> dict[str, str]:
    """Hashes everything that a certificate identifies.

    That is the data, the code that trained, the experiment as run, the model as a file and as a
    vector, and the statement, the result and the card of the run.

    Args:
        folder: The folder of the run.

    Returns:
        A hash for each name; what depends on private data is sealed.
    """
    files = {
        name: file_sha256(folder.file(name)) for name in ("experiment.toml", "model.safetensors")
    }
    plain = folder.experiment()["hashes"] | files | {"weights": folder.weights_sha256()}
    return (
        plain
        | {name: seal(folder, plain[name].encode()) for name in PRIVATE}
        | added_hashes(folder)
    )


def added_hashes(folder: RunFolder) -> dict[str, str]:
    """Hashes what the first certificates of this format do not have.

    Args:
        folder: The folder of the run.

    Returns:
        A hash for the statement, the result and the card, and for each node.
    """
    card = {NAME: file_sha256(folder.file(NAME))} if own_card(folder) is not None else {}
    seals = {
        name: seal(folder, canonical(_without_times(read(folder, name))))
        for name in ("statement.json", "result.json")
    }
    return card | seals | node_hashes(folder.experiment())


def _without_times(content: Any) -> Any:
    """Leaves out the time of the end, the only change when a finished run is resumed."""
    if not isinstance(content, dict):
        return content
    return {key: value for key, value in content.items() if key != "ended"}


def node_hashes(record: Mapping[str, Any]) -> dict[str, str]:
    """Hashes the name by which the nodes know the run, and the keys by which the run knows its
    nodes.

    The nonce of a run has 128 random bits and the keys are public, so no salt is needed.

    Args:
        record: The record of the run.

    Returns:
        The fingerprint of each node's key and the hash of the nonce; empty without nodes.
    """
    resolved_section, listed_nodes = (
        record["resolved"],
        record.get("experiment", {}).get("server", {}).get("nodes", {}),
    )
    if resolved_section.get("partition") != NODES:
        return {}
    keys = {
        f"{KEY_OF}{name}": fingerprint(str(listed_nodes[name]).split()[0])
        for name in recorded_names(resolved_section)
        if name in listed_nodes
    }
    return keys | {NODES_RUN: hashlib.sha256(str(record["run"]["nonce"]).encode()).hexdigest()}


def file_sha256(path: Path) -> str:
    """Hashes a file.

    Args:
        path: The file.

    Returns:
        SHA-256 in hexadecimal digits.

    Raises:
        DpflError: The file cannot be read.
    """
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise DpflError(
            f"{path} cannot be read ({error.strerror}); restore it from a copy."
        ) from error
