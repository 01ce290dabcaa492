"""A certificate in words: the words of the statement, the outcome and the audit."""

from __future__ import annotations

from typing import Any

import pytest

from dpfl.certificate.certificate_view import CertificateView, noise_in_words
from dpfl.privacy.statement_view import NOISE
from tests.certificate.by_hand import certificate


@pytest.mark.parametrize("noise", ["floating-point", "secure", "shared", "none"])
def test_noise_is_named_as_in_the_statement(noise: str) -> None:
    trained = certificate().trained.model_copy(update={"noise": noise})
    words = noise_in_words(trained)
    assert words.startswith(NOISE.get(noise, "none"))
    assert dict(CertificateView.of(certificate(trained=trained)).training)["Noise"] == words


@pytest.mark.parametrize(
    ("reported", "said"),
    [
        ({}, "nothing"),
        ({"accuracy": 0.5}, "accuracy 50.00% on the test set"),
        ({"measured": "loss 1"}, "loss 1"),
    ],
)
def test_what_was_measured_is_said_as_it_was_reported(reported: dict[str, Any], said: str) -> None:
    usual = certificate().reported.model_copy(update=reported)
    assert dict(CertificateView.of(certificate(reported=usual)).reported)["Measured"] == said


def test_an_audit_is_a_lower_bound_beside_the_proven_epsilon() -> None:
    audit = {"verdict": "consistent", "measured": 0.49999, "played": ["noise"]}
    reported = certificate().reported.model_copy(
        update={"audit": audit, "stopped_by": "epsilon", "started": "then"}
    )
    view = CertificateView.of(certificate(reported=reported))
    assert view.figures[2] == (
        "0.4999",
        "lower bound on epsilon, measured by an attack; as reported, not checked",
    )
    assert view.reported[1:] == (
        ("Run", "started then; the privacy budget is spent"),
        ("Audit", "consistent in noise"),
    )
    assert len(CertificateView.of(certificate()).reported) == 2, "no audit"
