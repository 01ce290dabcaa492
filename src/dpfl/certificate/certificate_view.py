"""A certificate in words: what its printed page and `dpfl verify` lay out.

The words are those of the statement, the outcome and the audit wherever these say the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dpfl.certificate.contents import display_figure, headline
from dpfl.certificate.sections import Certificate, ReportedSection, TrainingSection
from dpfl.privacy.statement_view import NOISE, USED_NOTE, PrivacyVerdict, unit_in_words
from dpfl.run.outcome_view import ending_in_words, metrics_in_words
from dpfl.views.audit_view import AuditView

Rows = tuple[tuple[str, str], ...]
"""Headings and texts."""


@dataclass(frozen=True)
class CertificateView:
    """A certificate as people read it."""

    verdict: PrivacyVerdict
    figures: Rows
    """The proven, the claimed and the measured epsilon, each before its label."""
    guarantee: Rows
    training: Rows
    reported: Rows
    """What the run reports about itself. It is not checked."""

    @classmethod
    def of(cls, certificate: Certificate) -> CertificateView:
        """Puts a certificate into words.

        Args:
            certificate: The contents.

        Returns:
            The view.
        """
        guarantee = certificate.guarantee
        claim = display_figure(certificate.claimed.epsilon)
        return cls(
            verdict=headline(certificate),
            figures=(
                (display_figure(guarantee.proven), f"epsilon proven, at delta {guarantee.delta:g}"),
                (claim, "epsilon claimed by the paper's own accounting"),
                audit_figure(certificate.reported.audit),
            ),
            guarantee=tuple(_guarantee(certificate)),
            training=tuple(_training(certificate)),
            reported=tuple(_report_rows(certificate.reported)),
        )


def audit_figure(audit: Mapping[str, Any] | None) -> tuple[str, str]:
    """Says what an audit measured.

    Args:
        audit: The audit as the certificate lists it; None without one.

    Returns:
        The figure and its label.
    """
    view = AuditView.of(audit)
    return view.figure, f"{view.label}; as reported, not checked"


def _guarantee(certificate: Certificate) -> Iterator[tuple[str, str]]:
    guarantee = certificate.guarantee
    yield "Unit", unit_in_words(guarantee.unit)
    yield "Neighbours", guarantee.neighbours
    yield "Adversary", guarantee.adversary
    yield "Delta", f"{guarantee.delta:g}"
    if guarantee.used != guarantee.proven:
        yield (
            "Used",
            f"{display_figure(guarantee.used)} of what is proven; {USED_NOTE}",
        )
    yield (
        "Accountant",
        f"{guarantee.accountant}, dp-accounting {certificate.versions.get('dp-accounting', '?')}",
    )
    for warning in guarantee.warnings:
        yield "Warning", warning
    yield "Claim", certificate.claimed.text


def _training(certificate: Certificate) -> Iterator[tuple[str, str]]:
    training = certificate.trained
    yield "Algorithm", f"{training.algorithm}, variant {training.variant}"
    yield "Model", training.model
    yield "Data", f"{training.clients} clients, {training.partition}"
    yield "Training", f"{training.rounds} rounds, {training.iterations} steps per client"
    yield "Budget", "none set" if training.budget is None else f"epsilon {training.budget:g}"
    yield "Noise", noise_in_words(training)
    yield (
        "Software",
        ", ".join(f"{name} {version}" for name, version in certificate.versions.items()),
    )


def noise_in_words(training: TrainingSection) -> str:
    """Names the kind of noise and where its random bits came from.

    Args:
        training: The certificate's section on training.

    Returns:
        Half a sentence, in the words of the privacy statement.
    """
    if training.noise not in NOISE:
        return "none"
    source = "the operating system" if training.entropy == "system" else "a seed"
    return f"{NOISE[training.noise]}; random bits from {source}"


def _report_rows(report: ReportedSection) -> Iterator[tuple[str, str]]:
    accuracy = "nothing"
    if report.accuracy is not None:
        accuracy = f"{metrics_in_words({'accuracy': report.accuracy}, {})} on the test set"
    yield "Measured", report.measured or accuracy
    yield "Run", f"started {report.started}; {ending_in_words(report.stopped_by)}"
    if report.audit:
        yield "Audit", AuditView.of(report.audit).outcome
