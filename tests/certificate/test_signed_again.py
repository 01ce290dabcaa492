"""A certificate that its own key signed again after somebody changed it: found where the run can
tell, else said.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpfl.certificate import verify
from tests.certificate.forgeries import sign_again, write_certificate

Body = dict[str, Any]


def twice(body: Body) -> None:
    body["accounts"].append(dict(body["accounts"][0]))


def twice_renamed_ledger(body: Body) -> None:
    body["accounts"].append(
        body["accounts"][0] | {"name": "client-00001", "ledger": "client-00000.sqlite"}
    )


ANYWHERE: dict[str, tuple[Callable[[Body], None], str]] = {
    "an account twice": (twice, "The account of client-00000 is listed twice."),
    "an account twice, under another name": (twice_renamed_ledger, "is listed twice"),
    "no time of issue": (lambda c: c.update(issued="yesterday"), "issued"),
    "a time of issue without a zone": (lambda c: c.update(issued="2030-01-01T00:00:00"), "issued"),
    "certified by nothing": (lambda c: c.update(certified_by={}), "certified_by"),
    "certified by more": (
        lambda c: c["certified_by"].update(auditor="a famous one"),
        "certified_by",
    ),
    "another version of this code": (
        lambda c: c["certified_by"].update(dpfl="99.0"),
        "certified_by",
    ),
    "a negative number of other runs": (
        lambda c: c["accounts"][0].update(other_runs=-1),
        "other runs",
    ),
    "a ledger under another's name": (
        lambda c: c["accounts"][0].update(ledger="client-00001.sqlite"),
        "client-00001.sqlite",
    ),
    "used is more than proven": (lambda c: c["guarantee"].update(used=99.0), "used"),
    "fewer accounts than clients": (lambda c: c["accounts"].pop(), "account"),
}


@pytest.mark.parametrize("what", ANYWHERE)
@pytest.mark.parametrize("alone", [False, True])
def test_what_no_certificate_of_any_run_says_is_found_without_the_run(
    run_of, key, tmp_path, what, alone
):
    change, words = ANYWHERE[what]
    file = write_certificate(run_of("samples"), key)
    sign_again(file, change, key)
    if alone:
        file = Path(shutil.copy(file, tmp_path / "alone.json"))
    findings = verify(file).findings
    assert any(words in finding for finding in findings), findings
    assert not any("changed after it was signed" in finding for finding in findings)


WITH_THE_RUN: dict[str, tuple[Callable[[Body], None], str]] = {
    "issued before its debits": (lambda c: c.update(issued="2020-01-01T00:00:00+00:00"), "issued"),
    "other versions": (lambda c: c["versions"].update(torch="0.1"), "torch is"),
    "a version more": (lambda c: c["versions"].update(auditor="1.0"), "auditor is"),
    "other runs": (lambda c: c["accounts"][1].update(other_runs=3), "client-00001"),
    "used": (lambda c: c["guarantee"].update(used=0.0), "used is"),
    "the unit": (lambda c: c["guarantee"].update(unit="person"), "unit is"),
    "the entropy": (lambda c: c["trained"].update(entropy="system"), "entropy is"),
    "the noise": (lambda c: c["trained"].update(noise="secure"), "noise is"),
    "the iterations": (lambda c: c["trained"].update(iterations=1), "iterations is"),
    "the run": (lambda c: c["trained"].update(run="0" * 32), "run is"),
    "assumptions": (lambda c: c["guarantee"].update(assumptions=[]), "assumptions is"),
    "the partition": (lambda c: c["trained"].update(partition="nodes"), "partition is"),
    "a hash more": (lambda c: c["hashes"].update(approval="00"), "approval is"),
}  # fmt: skip


@pytest.mark.parametrize("what", WITH_THE_RUN)
def test_what_the_run_can_tell_is_found_with_it(run_of, key, what):
    change, words = WITH_THE_RUN[what]
    file = write_certificate(run_of("keyed"), key)
    sign_again(file, change, key)
    findings = verify(file, run=file.parent).findings
    assert any(words in finding for finding in findings), findings


@pytest.mark.parametrize(
    "what", ["other versions", "other runs", "issued before its debits", "the entropy"]
)
def test_what_only_the_run_could_tell_is_said_to_be_unchecked_without_it(
    run_of, key, tmp_path, what
):
    file = write_certificate(run_of("keyed"), key)
    sign_again(file, WITH_THE_RUN[what][0], key)
    verdict = verify(Path(shutil.copy(file, tmp_path / "alone.json")))
    assert verdict.findings == []
    said = " ".join(verdict.not_checked)
    for words in ("issued", "versions", "other runs", "entropy", "--run"):
        assert words in said


def test_the_time_of_issue_is_the_signers_word_and_said_to_be(run_of, key):
    file = write_certificate(run_of("samples"), key)
    sign_again(file, lambda body: body.update(issued="2099-01-01T00:00:00+00:00"), key)
    verdict = verify(file)
    assert verdict.findings == []
    assert any("2099-01-01" in line and "signer" in line for line in verdict.not_checked)


def test_a_certificate_of_another_installation_says_that_its_code_is_not_here(run_of, key):
    file = write_certificate(run_of("samples"), key)
    sign_again(
        file, lambda body: body.update(certified_by={"dpfl": "0.0.1", "code": "00" * 32}), key
    )
    verdict = verify(file)
    assert verdict.findings == []
    assert any("certified_by" in line and "0.0.1" in line for line in verdict.not_checked)


def test_what_was_not_checked_is_in_the_json(run_of, key):
    verdict = verify(write_certificate(run_of("samples"), key))
    assert verdict.to_dict()["not_checked"] == verdict.not_checked
    assert verdict.not_checked
