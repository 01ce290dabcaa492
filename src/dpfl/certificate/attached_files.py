"""Files that lie beside a certificate: its page, and the model and the card that were sent with
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dpfl.certificate.check import VerificationCheck
from dpfl.certificate.contents import Certificate
from dpfl.certificate.earlier_words import in_present_words
from dpfl.certificate.printed_page import page
from dpfl.certificate.reading import strict_json
from dpfl.certificate.seals import file_sha256
from dpfl.run.folder import METRICS, STATEMENTS, RunFolder
from dpfl.run.model_card import NAME, TITLE

SENT = (NAME, "model.safetensors")
"""What goes to others with a certificate, by hashes that need no salt."""

COMPARED = {
    "experiment.toml",
    "checkpoint.safetensors",
    "model.safetensors",
    "statement.json",
    "result.json",
    "audit.json",
    "certificate.json",
    "certificate.html",
    "certificate.salt",
    "run.lock",
    "ledger",
    STATEMENTS,
    NAME,
}
"""What has a check of its own; the lock and the salt say nothing of privacy."""


def check_pages(
    file: Path, envelope: object, certificate: Certificate, signature: str, folder: RunFolder | None
) -> VerificationCheck:
    """Pages are pictures of a certificate: each is drawn again and compared, letter by letter.

    Args:
        file: Where the certificate lies.
        envelope: What is in that file.
        certificate: What it says.
        signature: What it is signed with.
        folder: The run's, where it is here.
    """
    pages = {file.with_suffix(".html").resolve(): file}
    if folder:
        pages.setdefault(folder.file("certificate.html").resolve(), folder.file("certificate.json"))
    findings, unchecked, seen = [], [], 0
    for path, source in pages.items():
        if not path.exists():
            continue
        seen += 1
        if _differs(path, certificate, signature):
            if source != file and _holds_another(source, envelope):
                unchecked.append(
                    f"{path.name}, which is the page of another certificate of this run: verify "
                    "that one."
                )
            else:
                findings.append(
                    f"{path.name} is not the page of this certificate; remove it, the signed file "
                    "alone counts."
                )
    return VerificationCheck(
        "page",
        "as this version draws it from the certificate" if seen else "none",
        tuple(findings),
        tuple(unchecked),
    )


def _differs(path: Path, certificate: Certificate, signature: str) -> bool:
    try:
        text = path.read_bytes().decode()
        return in_present_words(text) != page(certificate, signature)
    except (OSError, KeyError, ValueError):
        return True


def _holds_another(file: Path, envelope: object) -> bool:
    try:
        return bool(strict_json(file.read_text()) != envelope)
    except (OSError, ValueError):
        return False


def check_sent(file: Path, certificate: Certificate) -> VerificationCheck | None:
    """What lies beside a certificate that is away from its run; None where that is another run's
    folder, or nothing.
    """
    place = file.resolve().parent
    if (place / "experiment.toml").exists():
        return None
    findings, unchecked, seen = [], [], []
    for name in SENT:
        if not (place / name).exists() or (name == NAME and not _is_card(place / name)):
            continue
        seen.append(name)
        if name not in certificate.hashes:
            unchecked.append(f"{name} beside the certificate, which has no digest of it.")
        elif file_sha256(place / name) != certificate.hashes[name]:
            findings.append(f"{name} beside the certificate is not the one that was certified.")
    return (
        VerificationCheck(
            "sent with it", f"{', '.join(seen)}, as certified", tuple(findings), tuple(unchecked)
        )
        if seen
        else None
    )


def _is_card(path: Path) -> bool:
    return path.read_bytes().startswith(TITLE.encode())


def others(folder: RunFolder, certified: Path) -> Iterator[str]:
    """Files of a run's folder that no check compares: metrics round by round, logs, whatever
    somebody put there.
    """
    known = {*COMPARED, certified.name, certified.with_suffix(".html").name}
    found = sorted(path.name for path in folder.path.iterdir() if path.name not in known)
    found = [name for name in found if not name.startswith(f"{METRICS}-")]
    if found:
        yield f"Other files of the run's folder: {', '.join(found)}."
