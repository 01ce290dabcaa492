"""The sections of a certificate: every key that is signed, with its type.

A certificate holds exactly these keys. A reader refuses a file with another key, or with a value of
another type (`strict`).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from dpfl.certificate.figures import Epsilon


class CertificateSection(BaseModel):
    """A part of a certificate; it has exactly the keys that it lists."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class TrainingSection(CertificateSection):
    """The training: what was trained, how, and for how long."""

    run: str
    algorithm: str
    variant: str
    model: str
    clients: int
    partition: str
    entropy: str
    noise: str
    budget: float | None
    rounds: int
    iterations: int


class ReportedSection(CertificateSection):
    """The results that the run reports and a certificate cannot prove.

    Accuracy would need the test set, and an audit its games.
    """

    started: str
    accuracy: float | None
    stopped_by: str
    audit: dict[str, Any] | None
    measured: str | None = None
    """The first metric of the task, in words."""


class GuaranteeSection(CertificateSection):
    """The guarantee: its unit, neighbours, delta, adversary and accountant.

    `proven` is the largest epsilon of any account.
    """

    unit: str
    neighbours: str
    delta: float
    adversary: str
    accountant: str
    proven: Epsilon
    median: Epsilon
    lowest: Epsilon
    used: Epsilon
    """Epsilon of the releases that were made. It is no guarantee where their number depends on
    the results."""
    unaccounted: list[str]
    assumptions: list[str]
    warnings: list[str]


class ClaimSection(CertificateSection):
    """The figure that the paper's own accounting claims.

    It is for the events that the paper counts. Without an accountant it comes from a formula.
    """

    epsilon: Epsilon | None
    text: str
    accountant: str | None
    stated: dict[str, int]


class ReleaseSection(CertificateSection):
    """Equal releases of one account: the event, its description, and how many there were."""

    event: str
    kind: str
    count: int


class AccountSection(CertificateSection):
    """One ledger, with its epsilon and its releases.

    `seal` covers the debits and not the file, whose bytes change while its rows do not.
    """

    name: str
    ledger: str
    proven: Epsilon
    releases: list[ReleaseSection]
    debits: int
    other_runs: int
    seal: str


class Signer(CertificateSection):
    """The public key of the signer, and its fingerprint for people."""

    algorithm: Literal["Ed25519"] = "Ed25519"
    public_key: str
    fingerprint: str


class Certificate(CertificateSection):
    """The contents of a certificate, all of which are signed."""

    format: Literal["dpfl certificate 2"]
    issued: str
    trained: TrainingSection
    guarantee: GuaranteeSection
    claimed: ClaimSection
    accounts: list[AccountSection]
    reported: ReportedSection
    hashes: dict[str, str]
    versions: dict[str, str]
    certified_by: dict[str, str]
    signer: Signer
