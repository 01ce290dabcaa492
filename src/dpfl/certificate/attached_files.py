"""Checks the files beside a certificate: its printed page, the model and the model card."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dpfl.certificate.certificate_view import noise_in_words
from dpfl.certificate.check import VerificationCheck
from dpfl.certificate.earlier_words import (
    audit_box_in_present_words,
    in_present_words,
    noise_row_in_present_words,
)
from dpfl.certificate.printed_page import audit_box, page
from dpfl.certificate.reading import strict_json
from dpfl.certificate.seals import file_sha256
from dpfl.certificate.sections import Certificate
from dpfl.run.records.folder import METRICS, STATEMENTS, RunFolder
from dpfl.run.records.model_card import NAME, TITLE

ATTACHMENTS = (NAME, "model.safetensors")
"""Files that are passed on with a certificate; their hashes need no salt."""

FILES_WITH_A_CHECK = {
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
"""Files that have a check of their own; the lock and the salt say nothing about privacy."""


def check_pages(
    file: Path, envelope: object, certificate: Certificate, signature: str, folder: RunFolder | None
) -> VerificationCheck:
    """Lays out the page of a certificate again and compares it, byte by byte.

    Args:
        file: The certificate.
        envelope: The content of that file.
        certificate: The contents that are signed.
        signature: The signature.
        folder: The folder of the run, where it is available.

    Returns:
        The check.
    """
    pages = {file.with_suffix(".html").resolve(): file}
    if folder:
        pages.setdefault(folder.file("certificate.html").resolve(), folder.file("certificate.json"))
    findings, not_checked, count = [], [], 0
    for path, source in pages.items():
        if not path.exists():
            continue
        count += 1
        if _differs(path, certificate, signature):
            if source != file and _holds_another(source, envelope):
                not_checked.append(
                    f"{path.name}, which belongs to another certificate of this run; verify that "
                    "certificate."
                )
            else:
                findings.append(
                    f"{path.name} is not the page of this certificate. Remove it; only the signed "
                    "file counts."
                )
    return VerificationCheck(
        "page",
        "says what the certificate says" if count else "none",
        tuple(findings),
        tuple(not_checked),
    )


def _differs(path: Path, certificate: Certificate, signature: str) -> bool:
    try:
        text = path.read_bytes().decode()
        training, audit = certificate.trained, certificate.reported.audit
        text = noise_row_in_present_words(
            in_present_words(text), training.entropy, training.noise, noise_in_words(training)
        )
        text = audit_box_in_present_words(text, audit, audit_box(audit))
        return text != page(certificate, signature)
    except (OSError, KeyError, ValueError):
        return True


def _holds_another(file: Path, envelope: object) -> bool:
    try:
        return bool(strict_json(file.read_text()) != envelope)
    except (OSError, ValueError):
        return False


def check_attached(file: Path, certificate: Certificate) -> VerificationCheck | None:
    """Checks the model and the card beside a certificate that is away from its run.

    Args:
        file: The certificate.
        certificate: Its contents.

    Returns:
        The check; None where there are no such files, or the folder belongs to another run.
    """
    place = file.resolve().parent
    if (place / "experiment.toml").exists():
        return None
    findings, not_checked, names = [], [], []
    for name in ATTACHMENTS:
        if not (place / name).exists() or (name == NAME and not _is_card(place / name)):
            continue
        names.append(name)
        if name not in certificate.hashes:
            not_checked.append(f"{name} beside the certificate, which has no digest of it.")
        elif file_sha256(place / name) != certificate.hashes[name]:
            findings.append(f"{name} beside the certificate is not the one that was certified.")
    if not names:
        return None
    outcome = f"{', '.join(names)}, as certified"
    return VerificationCheck("sent with it", outcome, tuple(findings), tuple(not_checked))


def _is_card(path: Path) -> bool:
    return path.read_bytes().startswith(TITLE.encode())


def others(folder: RunFolder, file: Path) -> Iterator[str]:
    """Lists the files of a run that no check compares, such as metrics, logs and foreign files.

    Args:
        folder: The folder of the run.
        file: The certificate, which may lie there.

    Yields:
        One sentence with their names.
    """
    own_files = {*FILES_WITH_A_CHECK, file.name, file.with_suffix(".html").name}
    names = sorted(path.name for path in folder.path.iterdir() if path.name not in own_files)
    names = [name for name in names if not name.startswith(f"{METRICS}-")]
    if names:
        yield f"Other files in the run's folder: {', '.join(names)}."
