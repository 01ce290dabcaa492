"""What was edited before signing is refused, or not believed: words come from record, checkpoint
and ledgers alone.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from dpfl.certificate import Certificate, certify, verify
from dpfl.certificate.finished_run import _mapping
from dpfl.errors import DpflError
from dpfl.privacy import Ledger
from dpfl.privacy.accounting.events import gaussian
from dpfl.run.records.folder import RunFolder
from tests.certificate.forgeries import write_certificate
from tests.privacy.forging import debit_elsewhere


def edited(folder: Path, name: str, change: Callable[[Any], None]) -> None:
    content = json.loads((folder / name).read_text())
    change(content)
    (folder / name).write_text(json.dumps(content))


STATED: dict[str, Callable[[dict[str, Any]], None]] = {
    "unit": lambda told: told.update(unit="client"),
    "neighbours": lambda told: told.update(neighbours="replace one"),
    "delta": lambda told: told.update(delta=1e-9),
    "adversary": lambda told: told.update(adversary="everyone, always"),
    "assumptions": lambda told: told.update(assumptions=[]),
    "noise": lambda told: told.update(noise="secure"),
    "warnings": lambda told: told.update(warnings=["all is well"]),
    "accountant": lambda told: told.update(accountant="rdp"),
    "unaccounted": lambda told: told.update(unaccounted=["something"]),
    "claim": lambda told: told.update(claim="a theorem"),
}


@pytest.mark.parametrize("word", STATED)
def test_an_edited_statement_is_refused_by_the_word_that_differs(run_of, key, word):
    folder = run_of("keyed")
    edited(folder, "statement.json", STATED[word])
    with pytest.raises(DpflError, match=rf"statement\.json says {word} .* give"):
        certify(folder, key)


@pytest.mark.parametrize(
    ("word", "value"),
    [("rounds", 200), ("iterations", 1), ("run", "another"), ("model_sha256", "00")],
)
def test_an_edited_result_is_refused_by_the_word_that_differs(run_of, key, word, value):
    folder = run_of("keyed")
    edited(folder, "result.json", lambda told: told.update({word: value}))
    with pytest.raises(DpflError, match=rf"result\.json says {word} .* give"):
        certify(folder, key)


@pytest.mark.parametrize(
    ("words", "others"),
    [
        ('name = "fedavg-dp"', 'name = "auto"'),
        ('variant = "sound"', 'variant = "published"'),
        ('entropy = "keyed"', 'entropy = "system"'),
        ("multiplier = 1.0", "multiplier = 8.0"),
        ("clients = 4", "clients = 3"),
        ("delta = 1e-05", "delta = 1e-09"),
    ],
)
def test_an_edited_record_is_not_the_one_that_debits_were_made_under(run_of, key, words, others):
    path = run_of("keyed") / "experiment.toml"
    text = path.read_text()
    assert words in text
    path.write_text(text.replace(words, others))
    with pytest.raises(DpflError, match="has changed since its run wrote it"):
        certify(path.parent, key)


def test_a_record_with_a_name_to_match_has_no_debits(run_of, key):
    from dpfl.run.records.digests import record_id
    from dpfl.run.records.folder import RunFolder

    folder = RunFolder(run_of("keyed"))
    record = folder.experiment()
    record["resolved"]["entropy"] = "system"
    record["run"]["id"] = record_id(record)
    folder.write_experiment(record)
    with pytest.raises(DpflError, match="lost debits of this run"):
        certify(folder.path, key)


def with_numbers(folder: Path, **changes: Any) -> None:
    """The checkpoint, as if the run had come to other numbers."""
    path = folder / "checkpoint.safetensors"
    with safe_open(path, "np") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = dict(file.metadata())
    save_file(
        tensors, path, metadata | {"state": json.dumps(json.loads(metadata["state"]) | changes)}
    )


@pytest.mark.parametrize(("name", "account"), [("keyed", "client-0000"), ("clients", "federation")])
@pytest.mark.parametrize("edit", ["record", "ledgers"])
def test_a_checkpoint_that_says_nothing_was_paid_does_not_stand_for_the_debits(
    run_of, key, name, account, edit
):
    """Fault: a record with another name, or empty ledgers, and a checkpoint without payments were
    certified: epsilon 0.
    """
    from dpfl.run.records.digests import record_id
    from dpfl.run.records.folder import RunFolder

    folder = RunFolder(run_of(name))
    record = folder.experiment()
    with_numbers(folder.path, paid=[0] * len(list(folder.ledgers.glob("*.sqlite"))))
    if edit == "record":
        record["resolved"]["budget"]["delta"] = 1e-2
        record["run"]["id"] = record_id(record)
        folder.write_experiment(record)
        edited(folder.path, "result.json", lambda told: told.update(run=record["run"]["id"]))
        edited(folder.path, "statement.json", lambda told: told.update(delta=1e-2))
    else:
        for path in folder.ledgers.glob(f"{account}*.sqlite"):
            with closing(Ledger.read(path)) as ledger:
                words = ledger.account
            for file in folder.ledgers.glob(f"{path.name}*"):
                file.unlink()
            Ledger.open(path, words.owner, words.unit, words.neighbours).close()
    with pytest.raises(DpflError, match="no debit of the run"):
        certify(folder.path, key)


def test_a_client_with_a_large_epsilon_cannot_be_left_out(run_of, key):
    folder = run_of("keyed")
    debit_elsewhere(
        folder / "ledger" / "client-00002.sqlite", "another run", "all", gaussian(0.2), 1
    )
    left_out = json.loads((folder / "statement.json").read_text())
    name = sorted(left_out["per_client"])[2]
    edited(folder, "statement.json", lambda told: told["per_client"].pop(name))
    with pytest.raises(DpflError, match=r"statement\.json says per_client"):
        certify(folder, key)
    edited(folder, "statement.json", lambda told: told["per_client"].update({name: 0.1}))
    with pytest.raises(DpflError, match=r"statement\.json says per_client"):
        certify(folder, key)
    (folder / "statement.json").write_text(json.dumps(left_out))
    certificate = Certificate.model_validate(certify(folder, key)["certificate"])
    assert len(certificate.accounts) == 4
    assert float(certificate.guarantee.proven) > 30
    (folder / "ledger" / "client-00002.sqlite").unlink()
    with pytest.raises(DpflError, match="There is no ledger"):
        certify(folder, key)


def test_a_run_of_an_older_version_is_one_sentence(run_of, key):
    path = run_of("keyed") / "experiment.toml"
    path.write_text(
        "".join(
            line
            for line in path.read_text().splitlines(keepends=True)
            if not line.startswith("nonce")
        )
    )
    with pytest.raises(DpflError, match="was made by an older version"):
        certify(path.parent, key)


def test_rounds_are_those_of_the_checkpoint_and_debits_have_to_bear_them_out(run_of, key):
    folder = run_of("keyed")
    with_numbers(folder, round=200, iterations=200, paid=[200] * 4)
    with pytest.raises(DpflError, match="lost debits of this run"):
        certify(folder, key)
    with_numbers(folder, paid=[2])
    with pytest.raises(DpflError, match="contradict each other"):
        certify(folder, key)


def test_accuracy_and_a_forged_audit_are_reported_and_not_certified(run_of, key):
    folder = run_of("keyed")
    edited(folder, "result.json", lambda told: told.update(accuracy=0.999))
    (folder / "audit.json").write_text(
        json.dumps({"verdict": "consistent", "measured": 0.0, "games": [{"game": "membership"}]})
    )
    body = certify(folder, key)["certificate"]
    assert body["reported"]["accuracy"] == 0.999
    assert body["reported"]["audit"]["verdict"] == "consistent"
    assert "membership" not in json.dumps(body)
    assert "accuracy" not in body["trained"]
    assert "audit" not in body


def test_a_ledger_of_the_run_that_no_account_counts_is_named(run_of, key):
    """A client whose account was taken out of the record's count would be missing from the
    statement.
    """
    folder = run_of("samples")
    file = write_certificate(folder, key)
    run = json.loads((folder / "result.json").read_text())["run"]
    shutil.copy(
        folder / "ledger" / "client-00003.sqlite", folder / "ledger" / "client-00004.sqlite"
    )
    assert any("client-00004.sqlite" in finding for finding in verify(file).findings)
    with pytest.raises(DpflError, match=rf"client-00004\.sqlite holds debits of the run {run}"):
        certify(folder, key)


@pytest.mark.parametrize("text", ["[]", "1", '"words"', "null"])
def test_a_file_that_holds_something_else_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "statement.json").write_text(text)
    with pytest.raises(DpflError, match=r"statement\.json does not hold what a run writes there"):
        _mapping(RunFolder(tmp_path), "statement.json")
