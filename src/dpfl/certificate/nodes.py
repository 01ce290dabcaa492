"""What nodes say of themselves, beside the certificate of the run that they took part in: each signed with a key of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dpfl.certificate.check import Check
from dpfl.certificate.contents import Certificate
from dpfl.certificate.reading import strict_json
from dpfl.errors import DpflError
from dpfl.node import statement
from dpfl.run.folder import RunFolder


def verify_nodes(files: Sequence[Path], certificate: Certificate | None, folder: RunFolder | None) -> list[Check]:
    """Signature and figures of each; of which run it is, and by a key that the run listed, where its folder is here."""
    record = folder.experiment() if folder else {}
    return [_checked(file, certificate, record) for file in files]


def _checked(file: Path, certificate: Certificate | None, record: Mapping[str, Any]) -> Check:
    listed = record.get("experiment", {}).get("server", {}).get("nodes", {})
    try:
        given = strict_json(file.read_text())
        told = given["statement"]
        name, key = str(told["node"]), str(told["public_key"])
        known = str(listed[name]).split()[0] if name in listed else key
        words = statement.check(given, known)
        run = words["run"] or {"id": "", "releases": {}}
        outcome = _outcome(words, run, certificate)
    except (DpflError, OSError, ArithmeticError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        return Check(file.stem, "", (f"{file.name}: {error}",))
    if record and name not in listed:
        return Check(name, "", (f"The run lists no node {name}.",))
    if record and run["id"] != record.get("run", {}).get("nonce"):
        return Check(name, "", (f"The statement of {name} is of another run.",))
    whose = "by the key that the run lists" if record else f"by the key {key[:16]}..., to be compared with its owner"
    return Check(name, f"signed {whose}: {outcome}")


def _outcome(words: Mapping[str, Any], run: Mapping[str, Any], certificate: Certificate | None) -> str:
    made = sum(run["releases"].values())
    text = (
        f"for one {words['unit']} ({words['neighbours']}), delta {words['delta']:g}, proven {words['proven']} of "
        f"{words['limit']:g} in all ({words['accountant']}), against {words['adversary']}; {made} releases for this run"
    )
    account = next((one for one in certificate.accounts if one.name == words["node"]), None) if certificate else None
    if account is None:
        return text
    ordered = sum(released.count for released in account.releases)
    return text if made == ordered else f"{text}, where the server ordered {ordered}"
