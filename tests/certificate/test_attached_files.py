"""The printed page, the model and the card beside a certificate are compared with it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dpfl.certificate import certify, verify
from dpfl.certificate.attached_files import check_pages
from dpfl.certificate.earlier_words import REWORDINGS
from dpfl.certificate.printed_page import page
from dpfl.certificate.sections import ReleaseSection
from dpfl.privacy.accounting.events import encode, gaussian
from tests.certificate.by_hand import account, certificate
from tests.certificate.forgeries import sign_again, substitute, write_certificate

PAGES: dict[str, Callable[[str], str]] = {
    "the figure": substitute(r"<strong>[0-9.]+</strong>", "<strong>0.0100</strong>"),
    "the sentence": substitute(r"Epsilon [0-9.]+ at delta", "Epsilon 0.0100 at delta"),
    "an account": substitute(
        r"<span>client-00001</span><span>[0-9.]+", "<span>client-00001</span><span>0.0100"
    ),
    "a style that hides": substitute("</style>", ".figures { display: none }</style>"),
    "a script": substitute(
        "</body>", "<script>document.body.innerText = 'epsilon 0.01'</script></body>"
    ),
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
    """It is verified with its own certificate, and said to be not_checked here."""
    file = write_certificate(run_of("samples"), key)
    other = tmp_path / "other.json"
    other.write_text(json.dumps(certify(file.parent, key)))
    sign_again(file, lambda body: body.update(issued="2031-01-01T00:00:00+00:00"), key)
    verdict = verify(other, run=file.parent)
    assert verdict.findings == []
    assert any("certificate.html" in line for line in verdict.not_checked)


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


def test_files_that_nothing_compares_are_listed(run_of, key):
    file = write_certificate(run_of("samples"), key)
    (file.parent / "epsilon is 0.01.txt").write_text("so it is")
    (file.parent / "approved").mkdir()
    (line,) = [line for line in verify(file).not_checked if "metrics.parquet" in line]
    assert "epsilon is 0.01.txt" in line
    assert "approved" in line
    assert "README.md" not in line


def test_a_page_in_the_words_of_an_earlier_version_still_verifies(tmp_path: Path) -> None:
    """Every sentence that was reworded since is brought into its present words first."""
    released = [
        ReleaseSection(event=encode(gaussian(float(noise))), kind=f"kind {noise}", count=1)
        for noise in range(1, 9)
    ]
    body = certificate(
        {"unaccounted": ["raw sizes"], "used": 0.5},
        accounts=[account(releases=released, other_runs=2)],
        reported=certificate().reported.model_copy(
            update={"audit": {"verdict": "holds", "measured": 0.5, "scope": "a", "proven": 1.0}}
        ),
    )
    present = earlier = page(body, "00")
    reworded = 0
    for before, now in REWORDINGS:
        reworded += now in present
        earlier = earlier.replace(now, before)
    assert reworded >= 12
    path = tmp_path / "certificate.html"
    for text, findings in ((present, 0), (earlier, 0), (earlier.replace("0.5", "0.4"), 1)):
        path.write_text(text)
        check = check_pages(tmp_path / "certificate.json", {}, body, "00", None)
        assert len(check.findings) == findings


def test_a_page_that_rounded_an_audit_to_the_nearest_still_verifies(tmp_path: Path) -> None:
    audit = {"verdict": "holds", "measured": 0.49999, "scope": "a", "proven": 1.00001}
    body = certificate(reported=certificate().reported.model_copy(update={"audit": audit}))
    present = page(body, "00")
    earlier = present.replace("0.4999", "0.5000").replace("there: 1.0001", "there: 1.0000")
    assert earlier != present
    path = tmp_path / "certificate.html"
    for text, findings in ((present, 0), (earlier, 0), (earlier.replace("0.5000", "0.6000"), 1)):
        path.write_text(text)
        check = check_pages(tmp_path / "certificate.json", {}, body, "00", None)
        assert len(check.findings) == findings
