"""Hashes that say what a run was made of, without giving a record away.

A plain hash of private data is a release without noise: who knows all records but one can try
candidates until it fits. So whatever depends on the data is sealed with a salt (HMAC-SHA256) that
stays in the run's folder and is in no certificate.
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
from dpfl.data.names import client_names
from dpfl.data.remote_federation import NODES
from dpfl.errors import DpflError
from dpfl.protocol.keys import fingerprint
from dpfl.run.folder import RunFolder
from dpfl.run.model_card import NAME

SALT = "certificate.salt"
KEY_OF, NODES_RUN = "key of ", "run of nodes"
"""Names of hashes that say which nodes took part, and in what."""
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
        raise DpflError(
            f"{path} cannot be written ({error.strerror}); mend the folder, then certify again."
        ) from error


def seal(folder: RunFolder, content: bytes) -> str:
    path = folder.file(SALT)
    try:
        salt = bytes.fromhex(path.read_text())
    except (OSError, ValueError) as error:
        raise DpflError(
            f"{path} cannot be read; bring it from where the run was certified."
        ) from error
    return hmac.new(salt, content, "sha256").hexdigest()


def hashes(folder: RunFolder) -> dict[str, str]:
    """Of the data, the code that trained, the experiment as run, the model as a file and as a
    vector, and what the run says.
    """
    files = {
        name: file_sha256(folder.file(name)) for name in ("experiment.toml", "model.safetensors")
    }
    found = folder.experiment()["hashes"] | files | {"weights": folder.weights_sha256()}
    return (
        found
        | {name: seal(folder, found[name].encode()) for name in PRIVATE}
        | added_hashes(folder)
    )


def added_hashes(folder: RunFolder) -> dict[str, str]:
    """What certificates of the first versions of this form do not have: statement, result and card,
    and who the nodes are.
    """
    card = {NAME: file_sha256(folder.file(NAME))} if own_card(folder) is not None else {}
    told = {
        name: seal(folder, canonical(_without_times(read(folder, name))))
        for name in ("statement.json", "result.json")
    }
    return card | told | node_hashes(folder.experiment())


def _without_times(told: Any) -> Any:
    """A finished run that is finished again says another time, and nothing else."""
    return (
        {word: value for word, value in told.items() if word != "ended"}
        if isinstance(told, dict)
        else told
    )


def node_hashes(record: Mapping[str, Any]) -> dict[str, str]:
    """By what nodes know a run, and by what keys the run knows its nodes; nothing of a run without
    nodes.

    The nonce of a run has 128 random bits and the keys are public, so that no salt is needed.
    """
    resolved, listed = (
        record["resolved"],
        record.get("experiment", {}).get("server", {}).get("nodes", {}),
    )
    if resolved.get("partition") != NODES:
        return {}
    names = resolved.get("names") or client_names(resolved["clients"])
    keys = {
        f"{KEY_OF}{name}": fingerprint(str(listed[name]).split()[0])
        for name in names
        if name in listed
    }
    return keys | {NODES_RUN: hashlib.sha256(str(record["run"]["nonce"]).encode()).hexdigest()}


def file_sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise DpflError(
            f"{path} cannot be read ({error.strerror}); restore it from a copy."
        ) from error
