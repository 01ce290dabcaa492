"""A certificate is compared with the folder of its run: ledgers, files, and every section."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpfl.certificate import verify
from dpfl.certificate.run_checks import _data, _last_debit, _statement
from dpfl.privacy import Ledger
from dpfl.privacy.accounting.events import gaussian
from tests.certificate.by_hand import EPSILON, certificate
from tests.certificate.forgeries import (
    alter,
    edit_json,
    sign_again,
    without_new_hashes,
    write_certificate,
)
from tests.privacy.forging import forge


def test_a_certificate_from_before_files_were_sealed_verifies_and_says_so(run_of, key):
    file = write_certificate(run_of("samples"), key)
    sign_again(file, without_new_hashes, key)
    verdict = verify(file)
    assert verdict.findings == []
    assert any("README.md" in line and "result.json" in line for line in verdict.not_checked)


def test_a_single_digest_is_not_taken_out(run_of, key):
    file = write_certificate(run_of("samples"), key)
    sign_again(file, lambda body: body["hashes"].pop("README.md"), key)
    assert any("README.md is" in finding for finding in verify(file).findings)


@pytest.mark.parametrize("word", ["loss", "metrics", "notes", "warnings"])
def test_what_else_the_result_says_is_as_it_was_certified(run_of, key, word):
    file = write_certificate(run_of("samples"), key)
    edit_json(file.parent / "result.json", lambda told: told.update({word: 0.0}))
    assert any("result.json" in finding for finding in verify(file).findings)


def test_when_the_folder_was_finished_again_changes_nothing(run_of, key):
    file = write_certificate(run_of("samples"), key)
    edit_json(
        file.parent / "result.json", lambda told: told.update(ended="2031-01-01T00:00:00+00:00")
    )
    assert verify(file).findings == []


def test_the_last_debit_is_the_latest_of_all_accounts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / "a.sqlite", tmp_path / "b.sqlite", tmp_path / "c.sqlite"]
    for path, times in zip(paths, ((10.0, 20.0), (5.0, 15.0), ()), strict=True):
        with closing(Ledger.open(path, path.stem, "sample", "add/remove one")) as ledger:
            for at in times:
                monkeypatch.setattr(time, "time", lambda at=at: at)
                ledger.debit("run", f"run/{at}", gaussian(1.0), 1)
    monkeypatch.undo()
    assert _last_debit(SimpleNamespace(paths=lambda: paths)) == 20.0  # type: ignore[arg-type]
    assert _last_debit(SimpleNamespace(paths=lambda: paths[::-1])) == 20.0  # type: ignore[arg-type]
    assert _last_debit(SimpleNamespace(paths=lambda: paths[2:])) is None  # type: ignore[arg-type]
    assert _last_debit(SimpleNamespace(paths=list)) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("proven", "since"),
    [(EPSILON, False), (EPSILON - 1e-6, False), (EPSILON / 2, True), (99.0, False)],
)
def test_a_statement_from_before_says_so(proven: float, since: bool) -> None:
    run: Any = SimpleNamespace(recorded_statement=SimpleNamespace(proven=proven))
    assert ("true when the run ended" in _statement(run, certificate()).outcome) is since


def test_data_that_no_file_describes_is_said_to_be_unchecked() -> None:
    folder: Any = SimpleNamespace(experiment=dict)
    assert "passed in from Python" in _data(folder, certificate()).not_checked[0]


def tamper(folder: Path, ledger: str, statement: str) -> None:
    forge(folder / "ledger" / f"{ledger}.sqlite", statement)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda c: c["reported"].update(accuracy=0.999), "accuracy is"),
        (lambda c: c["trained"].update(rounds=7), "rounds is 2 in the run's folder; the "
            "certificate states 7"),
        (lambda c: c["guarantee"].update(adversary="nobody"), "adversary is"),
        (lambda c: c["hashes"].update(federation="00"), "federation is"),
        (lambda c: c["reported"]["audit"].update(measured=0.1), "audit is"),
        (lambda c: c["claimed"].update(text="a theorem"), "text is"),
        (lambda c: c["accounts"][0].update(seal="00"), "The ledger of client-00000"),
    ],
)  # fmt: skip
def test_what_only_the_run_can_tell_is_compared_with_it(certified, key, change, sentence):
    file = certified()
    findings = verify(alter(file, change, key), run=file.parent).findings
    assert len(findings) == 1
    assert sentence in findings[0]


def test_a_claim_by_a_formula_is_compared_with_the_run(certified, key):
    file = certified("published")
    findings = verify(
        alter(file, lambda c: c["claimed"].update(epsilon=0.1), key), run=file.parent
    ).findings
    assert len(findings) == 1
    assert "the certificate states 0.1" in findings[0]


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("UPDATE debits SET count = 50 WHERE id = 1", "51 x Gaussian noise, multiplier 1, Poisson "
            "sampling at rate 0.05 there"),
        ("DELETE FROM debits WHERE id = 2", "it holds 1 debits, the certificate 2"),
        ("INSERT INTO debits SELECT 3, run, 'more', event, 1, at, link, seal FROM debits WHERE id "
            "= 1",
         "it holds 3 debits, the certificate 2"),
        ("UPDATE debits SET release = 'another' WHERE id = 1", "with another run, name or time"),
        ("UPDATE debits SET at = at + 1 WHERE id = 1", "with another run, name or time"),
        ("UPDATE events SET event = '{\"mechanism\":\"gaussian\",\"noise_multiplier\":9.0}'",
         "2 x Gaussian noise, multiplier 9 there"),
        ("UPDATE events SET event = 'words'", "cannot be compared"),
        ("UPDATE account SET unit = 'client'", "The ledger of client-00002"),
    ],
)  # fmt: skip
def test_an_altered_ledger_is_named(certified, statement, sentence):
    file = certified()
    tamper(file.parent, "client-00002", statement)
    findings = verify(file).findings
    assert len(findings) == 1
    assert "client-00002" in findings[0]
    assert sentence in findings[0]


def test_the_federations_ledger_is_compared_too(certified):
    file = certified("clients")
    tamper(file.parent, "federation", "UPDATE debits SET count = 9 WHERE id = 1")
    (finding,) = verify(file).findings
    assert "The ledger of federation" in finding


def test_a_ledger_that_is_gone_is_named(certified):
    file = certified()
    (file.parent / "ledger" / "client-00003.sqlite").unlink()
    (finding,) = verify(file).findings
    assert "client-00003" in finding
    assert "There is no ledger" in finding


def test_an_account_left_out_of_a_certificate_is_named(certified, key):
    file = certified()
    findings = verify(
        alter(file, lambda body: body["accounts"].pop(), key), run=file.parent
    ).findings
    assert findings == ["The account of client-00003 is missing from the certificate."]


def test_a_statement_that_changed_since_is_named(certified):
    file = certified()
    path = file.parent / "statement.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"adversary": "nobody"}))
    derived, digest = verify(file).findings
    assert "statement.json says adversary 'nobody'" in derived
    assert digest.startswith("statement.json is ")
