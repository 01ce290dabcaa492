"""Figures that were forged in files beside the ledgers: refused before signing, named after it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dpfl
from dpfl.certificate import certify, verify
from dpfl.errors import DpflError
from dpfl.privacy.accounting.events import gaussian
from tests.certificate.forgeries import edit_json, sign_again, write_certificate
from tests.conftest import MODEL, small_federation
from tests.privacy.forging import debit_elsewhere

SYSTEM = dpfl.algorithms.fedavg_dp(noise_multiplier=1.0)


def halve(counts: dict[str, int]) -> None:
    for kind in counts:
        counts[kind] = 1


FIGURES: dict[str, Callable[[dict[str, Any]], None]] = {
    "proven": lambda told: told.update(proven=0.01),
    "used": lambda told: told.update(used=0.01),
    "per_client": lambda told: told["per_client"].update({"client-00001": 0.01}),
    "claimed": lambda told: told.update(claimed=0.01),
    "releases": lambda told: halve(told["releases"]),
    "most": lambda told: halve(told["most"]),
    "stated": lambda told: halve(told["stated"]),
    "asked": lambda told: told.update(asked=["for nothing"]),
    "seal of approval": lambda told: told.update({"seal of approval": "epsilon 0.01"}),
}


@pytest.mark.parametrize("word", FIGURES)
def test_an_edited_figure_of_the_statement_is_not_certified(run_of, key, word):
    """Fault: certify compared the words of statement.json and none of its figures."""
    folder = run_of("samples")
    edit_json(folder / "statement.json", FIGURES[word])
    with pytest.raises(DpflError, match=rf"statement\.json says {word}"):
        certify(folder, key)


@pytest.mark.parametrize("word", FIGURES)
def test_a_figure_of_the_statement_that_was_edited_since_is_named(run_of, key, word):
    file = write_certificate(run_of("samples"), key)
    edit_json(file.parent / "statement.json", FIGURES[word])
    findings = verify(file).findings
    assert any(f"statement.json says {word}" in finding for finding in findings), findings


@pytest.mark.parametrize("word", ["proven", "per_client", "delta"])
def test_a_statement_inside_the_result_is_compared_too(run_of, key, word):
    folder = run_of("samples")
    change = FIGURES.get(word, lambda told: told.update(delta=1e-9))
    edit_json(folder / "result.json", lambda told: change(told["privacy"]))
    with pytest.raises(DpflError, match=r"result\.json says privacy"):
        certify(folder, key)


def shared_runs(root: Path) -> Path:
    """Two runs on the same ledgers, between which one client alone paid for something else; the
    folder of the second.
    """
    for name in ("first", "second"):
        if name == "second":
            debit_elsewhere(
                root / "ledgers" / "client-00002.sqlite", "another run", "all", gaussian(0.5), 1
            )
        dpfl.train(
            MODEL,
            small_federation(),
            SYSTEM,
            dpfl.Budget(rounds=1),
            privacy=dpfl.Privacy(ledger=root / "ledgers", entropy="system"),
            execution=dpfl.Execution(out=root / name),
        )
    return root / "second"


def test_epsilons_that_change_their_clients_are_refused(tmp_path, key):
    folder = shared_runs(tmp_path)
    certify(folder, key)

    def swap(told: dict[str, Any]) -> None:
        clients = told["per_client"]
        clients["client-00000"], clients["client-00002"] = (
            clients["client-00002"],
            clients["client-00000"],
        )
        assert clients["client-00000"] > clients["client-00002"]

    edit_json(folder / "statement.json", swap)
    with pytest.raises(DpflError, match=r"statement\.json says per_client"):
        certify(folder, key)


def test_a_statement_from_before_other_runs_spent_is_true_and_one_below_that_is_not(tmp_path, key):
    """It was true when it was written, so it is certified: at the epsilon that the ledgers have
    now.
    """
    shared_runs(tmp_path)
    folder = tmp_path / "first"
    told = json.loads((folder / "statement.json").read_text())["proven"]
    file = write_certificate(folder, key)
    assert verify(file).findings == []
    assert json.loads(file.read_text())["certificate"]["guarantee"]["proven"] > told
    for proven, refused in ((told * 0.9, True), (1e3, True), (told, False)):
        edit_json(
            folder / "statement.json", lambda words, proven=proven: words.update(proven=proven)
        )
        if refused:
            with pytest.raises(DpflError, match=r"statement\.json says proven"):
                certify(folder, key)
        else:
            certify(folder, key)


def test_the_largest_epsilon_of_clients_is_the_one_that_is_proven(tmp_path, key):
    """Where other runs spent later there is room for figures; they still have to be one
    statement.
    """
    shared_runs(tmp_path)
    folder = tmp_path / "first"
    edit_json(
        folder / "statement.json",
        lambda told: told["per_client"].update({"client-00002": told["proven"] + 0.1}),
    )
    with pytest.raises(DpflError, match=r"statement\.json says proven"):
        certify(folder, key)


def sub(pattern: str, replacement: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        changed = re.sub(pattern, replacement, text, count=1)
        assert changed != text
        return changed

    return change


CARDS: dict[str, Callable[[str], str]] = {
    "the proven epsilon": sub(r"proven( +)epsilon [0-9.]+", r"proven\1epsilon 0.0100"),
    "its delta": sub(r"at delta 1e-05 by", "at delta 1e-09 by"),
    "the unit": sub("one sample; neighbours", "one person; neighbours"),
    "the adversary": sub(r"adversary( +).*", r"adversary\1everybody, always"),
    "an assumption taken out": sub(r"    assumes.*\n", ""),
    "an assumption put in": sub(r"    assumes", "    proven             epsilon 0.01 by hand\n    "
        "assumes"),
    "the rounds": sub("after 2 rounds", "after 1 rounds"),
    "the budget": sub(r"\| budget \| .* \|", "| budget | epsilon 0.01 at delta 1e-05 for one "
        "sample |"),
    "what was measured": sub(r"\| measured \| .* \|", r"| measured | accuracy 99.99% |"),
    "the weights": sub(r"SHA-256 `[0-9a-f]{4}", "SHA-256 `0000"),
    "the system": sub(r"\| system \| .* \|", "| system | `auto`, sound |"),
    "a heading": sub("## How to load it", "## In short\n\nEverything is well.\n\n## How to load "
        "it"),
    "a sentence at the end": lambda text: text + "- The true epsilon is 0.01.\n",
    "a sentence in between": sub("With PyTorch", "Its epsilon is 0.01. With PyTorch"),
}  # fmt: skip


@pytest.mark.parametrize("what", CARDS)
def test_a_forged_model_card_is_not_certified(run_of, key, what):
    folder = run_of("samples")
    card = folder / "README.md"
    card.write_text(CARDS[what](card.read_text()))
    with pytest.raises(DpflError, match=r"README\.md"):
        certify(folder, key)


@pytest.mark.parametrize("what", CARDS)
@pytest.mark.parametrize("older", [False, True])
def test_a_model_card_that_was_forged_since_is_named(run_of, key, what, older):
    """By its digest in the certificate; where the certificate is from before it had one, by its own
    words.
    """
    file = write_certificate(run_of("samples"), key)
    if older:
        sign_again(file, without_new_hashes, key)
        assert verify(file).findings == []
    card = file.parent / "README.md"
    card.write_text(CARDS[what](card.read_text()))
    findings = verify(file).findings
    assert any("README.md" in finding for finding in findings), findings


NEW_HASHES = ("README.md", "statement.json", "result.json")


def without_new_hashes(body: dict[str, Any]) -> None:
    for name in NEW_HASHES:
        del body["hashes"][name]


def test_a_certificate_from_before_files_were_sealed_verifies_and_says_so(run_of, key):
    file = write_certificate(run_of("samples"), key)
    sign_again(file, without_new_hashes, key)
    verdict = verify(file)
    assert verdict.findings == []
    assert any("README.md" in line and "result.json" in line for line in verdict.unchecked)


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


def test_somebody_elses_readme_is_said_to_be_unchecked(run_of, key):
    folder = run_of("samples")
    (folder / "README.md").write_text("# My notes\n\nepsilon 0.01\n")
    verdict = verify(write_certificate(folder, key))
    assert verdict.findings == []
    assert any("README.md" in line for line in verdict.unchecked)


def test_a_card_that_is_gone_or_somebody_elses_since_is_named(run_of, key):
    file = write_certificate(run_of("samples"), key)
    (file.parent / "README.md").write_text("# My notes\n\nepsilon 0.01\n")
    assert any("README.md" in finding for finding in verify(file).findings)
    (file.parent / "README.md").unlink()
    assert any("README.md" in finding for finding in verify(file).findings)


PAGES: dict[str, Callable[[str], str]] = {
    "the figure": sub(r"<strong>[0-9.]+</strong>", "<strong>0.0100</strong>"),
    "the sentence": sub(r"Epsilon [0-9.]+ at delta", "Epsilon 0.0100 at delta"),
    "an account": sub(
        r"<span>client-00001</span><span>[0-9.]+", "<span>client-00001</span><span>0.0100"
    ),
    "a style that hides": sub("</style>", ".figures { display: none }</style>"),
    "a script": sub("</body>", "<script>document.body.innerText = 'epsilon 0.01'</script></body>"),
}


@pytest.mark.parametrize("what", PAGES)
@pytest.mark.parametrize("alone", [False, True])
def test_a_forged_page_beside_a_true_certificate_is_named(run_of, key, tmp_path, what, alone):
    file = write_certificate(run_of("samples"), key)
    if alone:
        (tmp_path / "sent").mkdir()
        for name in ("certificate.json", "certificate.html"):
            shutil.copy(file.parent / name, tmp_path / "sent" / name)
        file = tmp_path / "sent" / "certificate.json"
    assert verify(file).findings == []
    printed = file.with_suffix(".html")
    printed.write_text(PAGES[what](printed.read_text()))
    (finding,) = verify(file).findings
    assert "certificate.html is not the page of this certificate" in finding


def test_the_page_in_the_runs_folder_is_looked_at_from_elsewhere(run_of, key, tmp_path):
    file = write_certificate(run_of("samples"), key)
    elsewhere = Path(shutil.copy(file, tmp_path / "sent.json"))
    printed = file.with_suffix(".html")
    printed.write_text(PAGES["the figure"](printed.read_text()))
    (finding,) = verify(elsewhere, run=file.parent).findings
    assert "certificate.html is not the page" in finding


def test_the_page_of_another_certificate_of_the_run_is_not_this_ones(run_of, key, tmp_path):
    """It is verified with its own certificate, and said to be unchecked here."""
    file = write_certificate(run_of("samples"), key)
    other = tmp_path / "other.json"
    other.write_text(json.dumps(certify(file.parent, key)))
    sign_again(file, lambda body: body.update(issued="2031-01-01T00:00:00+00:00"), key)
    verdict = verify(other, run=file.parent)
    assert verdict.findings == []
    assert any("certificate.html" in line for line in verdict.unchecked)


@pytest.mark.parametrize("name", ["README.md", "model.safetensors"])
def test_what_was_sent_with_a_certificate_is_compared_without_the_run(run_of, key, tmp_path, name):
    file = write_certificate(run_of("samples"), key)
    sent = tmp_path / "sent"
    sent.mkdir()
    for part in ("certificate.json", "README.md", "model.safetensors"):
        shutil.copy(file.parent / part, sent / part)
    assert verify(sent / "certificate.json").findings == []
    content = bytearray((sent / name).read_bytes())
    content[-2] ^= 1
    (sent / name).write_bytes(content)
    (finding,) = verify(sent / "certificate.json").findings
    assert name in finding


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


def test_files_that_nothing_compares_are_listed(run_of, key):
    file = write_certificate(run_of("samples"), key)
    (file.parent / "epsilon is 0.01.txt").write_text("so it is")
    (file.parent / "approved").mkdir()
    (line,) = [line for line in verify(file).unchecked if "metrics.parquet" in line]
    assert "epsilon is 0.01.txt" in line
    assert "approved" in line
    assert "README.md" not in line
