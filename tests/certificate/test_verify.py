"""Whatever is altered is found, by a sentence that names it."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpfl.certificate import certify, new_key, verify
from dpfl.certificate.verify import _without_run
from dpfl.errors import DpflError
from dpfl.protocol.keys import public_file
from tests.certificate.by_hand import certificate
from tests.certificate.forgeries import alter


@pytest.mark.parametrize("name", ["samples", "keyed", "clients", "published", "unequal"])
def test_a_certificate_verifies_with_its_run_and_without(certified, key, tmp_path, name):
    file = certified(name)
    verdict = verify(file, key=public_file(key))
    assert verdict.findings == []
    assert {"ledgers", "files", "training", "reported", "accounts"} <= {
        check.name for check in verdict.checks
    }
    alone = Path(shutil.copy(file, tmp_path / "alone.json"))
    assert verify(alone).findings == []
    assert verify(alone, run=file.parent).findings == []


def test_a_ledger_whose_file_changed_and_rows_did_not_verifies(certified):
    file = certified()
    connection = sqlite3.connect(file.parent / "ledger" / "client-00000.sqlite")
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute("VACUUM")
    connection.close()
    assert verify(file).findings == []


ALTERED: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "an account's epsilon": (
        lambda c: c["accounts"][2].update(proven=0.01),
        "client-00002: the listed releases cost epsilon",
    ),
    "the largest epsilon": (
        lambda c: c["guarantee"].update(proven=0.01),
        "The largest epsilon of the accounts is",
    ),
    "the median": (
        lambda c: c["guarantee"].update(median=0.01),
        "The median epsilon of the accounts is",
    ),
    "an event's count": (
        lambda c: c["accounts"][1]["releases"][0].update(count=1),
        "client-00001: the listed releases cost",
    ),
    "an event": (
        lambda c: c["accounts"][1]["releases"][0].update(
            event='{"mechanism":"gaussian","noise_multiplier":9.0}'
        ),
        "client-00001: the listed releases cost",
    ),
    "an event's words": (
        lambda c: c["accounts"][1]["releases"][0].update(kind="nothing much"),
        "is called 'nothing much'",
    ),
    "an event's form": (
        lambda c: c["accounts"][1]["releases"][0].update(event="{}"),
        "cannot be computed again",
    ),
    "what is claimed": (
        lambda c: c["claimed"].update(epsilon=0.5),
        "the certificate states 0.5 as claimed",
    ),
    "a huge count": (
        lambda c: c["accounts"][1]["releases"][0].update(count=10**12),
        "client-00001: the listed releases cost",
    ),
    "too much noise": (
        lambda c: c["accounts"][1]["releases"][0].update(
            event='{"mechanism":"gaussian","noise_multiplier":1e+300}'
        ),
        "client-00001: the listed releases cost",
    ),
    "no accounts": (lambda c: c.update(accounts=[]), "cannot be computed again"),
    "an unbounded epsilon": (
        lambda c: c["accounts"][2].update(proven="unbounded"),
        "the certificate states unbounded",
    ),
    "an impossible delta": (lambda c: c["guarantee"].update(delta=2.0), "cannot be computed again"),
    "what the claim counts": (
        lambda c: c["claimed"].update(stated=dict.fromkeys(c["claimed"]["stated"], 10**9)),
        "as claimed",
    ),
    "delta": (lambda c: c["guarantee"].update(delta=1e-3), "the listed releases cost epsilon"),
    "the accountant": (
        lambda c: c["guarantee"].update(accountant="gdp-clt"),
        "gdp-clt is an approximation",
    ),
    "the neighbours": (
        lambda c: c["guarantee"].update(neighbours="replace one"),
        "not 'replace one'",
    ),
    "a leak": (
        lambda c: c["guarantee"].update(unaccounted=["a histogram"]),
        "released something without protection",
    ),
    "the fingerprint": (
        lambda c: c["signer"].update(fingerprint="sha256:00"),
        "The fingerprint sha256:00",
    ),
}


@pytest.mark.parametrize("what", ALTERED)
def test_altered_figures_are_named_even_if_signed_again(certified, key, what):
    change, sentence = ALTERED[what]
    file = certified()
    unsigned = verify(alter(file, change)).findings
    assert "changed after it was signed" in unsigned[0]
    resigned = verify(alter(file, change, key)).findings
    assert any(sentence in finding for finding in resigned), resigned
    assert not any("changed after it was signed" in finding for finding in resigned)


@pytest.mark.parametrize(
    "field", ["issued", "trained", "reported", "versions", "certified_by", "hashes"]
)
def test_anything_else_is_under_the_signature(certified, field):
    def change(body: dict[str, Any]) -> None:
        body[field] = (
            "2020-01-01" if field == "issued" else {**body[field], next(iter(body[field])): "other"}
        )

    findings = verify(alter(certified(), change)).findings
    assert (
        findings[0]
        == "The signature does not match the certificate: its contents were changed after it was "
        "signed."
    )
    assert len(findings) == (2 if field in ("issued", "certified_by") else 1)


def test_an_altered_model_file_is_named(certified):
    file = certified()
    model = file.parent / "model.safetensors"
    content = bytearray(model.read_bytes())
    content[-1] ^= 1
    model.write_bytes(content)
    findings = verify(file).findings
    assert any("model.safetensors is" in finding for finding in findings)
    assert any("weights is" in finding for finding in findings)
    model.write_bytes(content[:50])
    assert any("model.safetensors is damaged" in finding for finding in verify(file).findings)


def test_another_key_is_named(certified, tmp_path):
    new_key(tmp_path / "other.pem")
    (finding,) = verify(certified(), key=tmp_path / "other.pem.pub").findings
    assert "not with the one given" in finding


def test_a_certificate_signed_by_a_stranger_fails_under_the_known_key(certified, key, tmp_path):
    new_key(tmp_path / "stranger.pem")
    file = certified()
    envelope = certify(file.parent, tmp_path / "stranger.pem")
    (tmp_path / "false.json").write_text(json.dumps(envelope))
    assert verify(tmp_path / "false.json").findings == []
    assert verify(tmp_path / "false.json", key=public_file(key)).findings


@pytest.mark.parametrize("part", [0.0, 0.2, 0.9, 0.999])
def test_a_truncated_file_is_named(certified, part):
    file = certified()
    text = file.read_text()
    file.write_text(text[: int(len(text) * part)])
    (finding,) = verify(file).findings
    assert "is not a complete certificate" in finding


@pytest.mark.parametrize(
    "text",
    [
        "words",
        "[" * 100_000,
        "[]",
        "null",
        "3",
        '{"certificate": {}}',
        '{"certificate": {}, "signature": "00"}',
        '{"certificate": NaN}',
    ],
)
def test_what_is_no_certificate_is_named(tmp_path, text):
    (tmp_path / "c.json").write_text(text)
    (finding,) = verify(tmp_path / "c.json").findings
    assert "is not a complete certificate" in finding


def test_bytes_that_are_no_text_are_named(tmp_path):
    (tmp_path / "c.json").write_bytes(b"\xff\xfe\x00")
    assert "is not a complete certificate" in verify(tmp_path / "c.json").findings[0]


def test_a_key_that_stands_twice_is_refused(certified):
    file = certified()
    file.write_text(file.read_text().replace('"issued":', '"issued": "2020-01-01", "issued":', 1))
    assert "has a key twice" in verify(file).findings[0]


@pytest.mark.parametrize("extra", ["outside", "inside"])
def test_words_that_nobody_signed_have_no_place(certified, extra):
    file = certified()
    envelope = json.loads(file.read_text())
    (envelope if extra == "outside" else envelope["certificate"])["note"] = "epsilon is 0.1"
    file.write_text(json.dumps(envelope))
    assert "is not a complete certificate" in verify(file).findings[0]


def test_bad_usage_is_an_error_and_no_verdict(tmp_path, certified):
    with pytest.raises(DpflError, match="no certificate"):
        verify(tmp_path / "none.json")
    with pytest.raises(DpflError, match="no run"):
        verify(certified(), run=tmp_path)
    with pytest.raises(DpflError, match="public key"):
        verify(tmp_path / "none.json", key=tmp_path / "none.pub")


def test_the_run_beside_is_used_only_if_it_is_the_run(certified, run_of):
    file = certified()
    elsewhere = Path(shutil.copy(file, run_of("keyed") / "certificate.json"))
    verdict = verify(elsewhere)
    assert verdict.findings == []
    assert [check.outcome for check in verdict.checks if check.name == "run"] == [
        "not compared: give its folder with --run"
    ]


def test_no_hash_of_private_data_is_in_a_certificate(certified):
    """Who guesses the one record that is missing could confirm the guess."""
    file = certified()
    private = tomllib.loads((file.parent / "experiment.toml").read_text())["hashes"]
    salt = (file.parent / "certificate.salt").read_text()
    for secret in (
        private["federation"],
        private["train"],
        salt,
        _sha256(file.parent / "experiment.toml"),
    ):
        assert secret not in file.read_text()


def test_two_runs_on_the_same_data_have_unlike_seals(certified):
    one, other = (
        json.loads(certified(name).read_text())["certificate"]["hashes"]
        for name in ("samples", "keyed")
    )
    assert one["test"] == other["test"]
    assert one["federation"] != other["federation"]
    assert one["train"] != other["train"]


def test_a_run_without_its_salt_cannot_be_compared(certified):
    file = certified()
    (file.parent / "certificate.salt").unlink()
    (finding,) = verify(file).findings
    assert "certificate.salt cannot be read" in finding


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_certificate_of_the_first_form_is_one_sentence(certified):
    file = alter(certified(), lambda body: body.update(format="dpfl certificate 1"))
    (finding,) = verify(file).findings
    assert "has an older format" in finding


@pytest.mark.parametrize(("accountant", "said"), [(None, True), ("rdp", False)])
def test_a_claim_of_a_formula_is_said_to_be_unchecked_without_the_run(
    tmp_path: Path, accountant: str | None, said: bool
) -> None:
    run, *_ = _without_run(
        certificate(claimed={"epsilon": 1.0, "accountant": accountant}),
        tmp_path / "certificate.json",
    )
    assert ("which comes from a formula" in run.not_checked[0]) is said
