"""Files of a run as a forger leaves them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dpfl.certificate import Certificate, certify
from dpfl.certificate.printed_page import page
from dpfl.protocol.keys import load_private, sign

Change = Callable[[Any], None]


def edit_json(path: Path, change: Change) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def write_certificate(folder: Path, key: Path) -> Path:
    """The certificate of a run and its page, as `dpfl certify` writes them."""
    envelope = certify(folder, key)
    certificate = Certificate.model_validate(envelope["certificate"])
    (folder / "certificate.json").write_text(json.dumps(envelope, indent=2))
    (folder / "certificate.html").write_text(page(certificate, envelope["signature"]))
    return folder / "certificate.json"


def sign_again(file: Path, change: Change, key: Path) -> None:
    """The altered certificate in its place, signed again, with a page to match."""
    envelope = json.loads(file.read_text())
    change(envelope["certificate"])
    envelope["signature"] = sign(envelope["certificate"], load_private(key))
    file.write_text(json.dumps(envelope))
    certificate = Certificate.model_validate(envelope["certificate"])
    file.with_suffix(".html").write_text(page(certificate, envelope["signature"]))


def substitute(pattern: str, replacement: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        changed = re.sub(pattern, replacement, text, count=1)
        assert changed != text
        return changed

    return change


NEW_HASHES = ("README.md", "statement.json", "result.json")


def without_new_hashes(body: dict[str, Any]) -> None:
    for name in NEW_HASHES:
        del body["hashes"][name]


def alter(file: Path, change: Callable[[dict[str, Any]], None], key: Path | None = None) -> Path:
    """The altered certificate, away from its run; signed again where there is a key."""
    envelope = json.loads(file.read_text())
    change(envelope["certificate"])
    if key:
        envelope["signature"] = sign(envelope["certificate"], load_private(key))
    altered = file.parent.parent / "altered.json"
    altered.write_text(json.dumps(envelope))
    return altered
