"""A model card says what its run says; a forged one is refused before signing, and named later."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dpfl.certificate import certify, verify
from dpfl.errors import DpflError
from tests.certificate.forgeries import (
    sign_again,
    substitute,
    without_new_hashes,
    write_certificate,
)

CARDS: dict[str, Callable[[str], str]] = {
    "the proven epsilon": substitute(r"proven( +)epsilon [0-9.]+", r"proven\1epsilon 0.0100"),
    "its delta": substitute(r"at delta 1e-05 by", "at delta 1e-09 by"),
    "the unit": substitute("one sample; neighbours", "one person; neighbours"),
    "the adversary": substitute(r"adversary( +).*", r"adversary\1everybody, always"),
    "an assumption taken out": substitute(r"    assumes.*\n", ""),
    "an assumption put in": substitute(
        r"    assumes", "    proven             epsilon 0.01 by hand\n    assumes"
    ),
    "the rounds": substitute("after 2 rounds", "after 1 rounds"),
    "the budget": substitute(
        r"\| budget \| .* \|", "| budget | epsilon 0.01 at delta 1e-05 for one sample |"
    ),
    "what was measured": substitute(r"\| measured \| .* \|", r"| measured | accuracy 99.99% |"),
    "the weights": substitute(r"SHA-256 `[0-9a-f]{4}", "SHA-256 `0000"),
    "the system": substitute(r"\| system \| .* \|", "| system | `auto`, sound |"),
    "a heading": substitute(
        "## How to load it", "## In short\n\nEverything is well.\n\n## How to load it"
    ),
    "a sentence at the end": lambda text: text + "- The true epsilon is 0.01.\n",
    "a sentence in between": substitute("With PyTorch", "Its epsilon is 0.01. With PyTorch"),
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


def test_a_card_that_names_the_ending_as_earlier_versions_did_is_certified(run_of, key):
    folder = run_of("samples")
    card = folder / "README.md"
    earlier = card.read_text().replace("rounds; all rounds were run |", "rounds, by rounds |")
    assert earlier != card.read_text()
    card.write_text(earlier)
    assert certify(folder, key)["certificate"]["hashes"]["README.md"]


def test_somebody_elses_readme_is_said_to_be_unchecked(run_of, key):
    folder = run_of("samples")
    (folder / "README.md").write_text("# My notes\n\nepsilon 0.01\n")
    verdict = verify(write_certificate(folder, key))
    assert verdict.findings == []
    assert any("README.md" in line for line in verdict.not_checked)


def test_a_card_that_is_gone_or_somebody_elses_since_is_named(run_of, key):
    file = write_certificate(run_of("samples"), key)
    (file.parent / "README.md").write_text("# My notes\n\nepsilon 0.01\n")
    assert any("README.md" in finding for finding in verify(file).findings)
    (file.parent / "README.md").unlink()
    assert any("README.md" in finding for finding in verify(file).findings)
