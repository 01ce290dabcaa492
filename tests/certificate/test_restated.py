"""The statement of a run, made again from its ledgers and compared with the one that it wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dpfl
from dpfl.certificate import certify, verify
from dpfl.certificate.restated import COUNTS, FIGURES, RestatedStatement
from dpfl.errors import DpflError
from dpfl.privacy.accounting.events import gaussian
from tests.certificate.forgeries import edit_json, write_certificate
from tests.conftest import MODEL, small_federation
from tests.privacy.forging import debit_elsewhere


class TestRestated:
    def fits(self, word: str, said: Any, truth: Any, low: Any) -> bool:
        restated = RestatedStatement.__new__(RestatedStatement)
        restated.__dict__["_low"] = {word: low}
        return restated._fits(word, said, truth)

    @pytest.mark.parametrize("word", sorted(COUNTS))
    def test_counts_lie_between_those_of_the_run_and_those_of_now(self, word: str) -> None:
        truth, low = {"a": 5, "b": 3}, {"a": 2, "b": 1}
        for said in (truth, low, {"a": 3, "b": 2}):
            assert self.fits(word, said, truth, low)
        for said in (
            {"a": 1, "b": 2},
            {"a": 6, "b": 2},
            {"a": 3},
            {"a": 3, "b": 2, "c": 1},
            {},
            None,
            "words",
        ):
            assert not self.fits(word, said, truth, low)
        assert self.fits(word, {"a": 3}, truth, {"a": 2}), "a kind that came later"

    def test_what_the_paper_counts_lies_between_in_all(self) -> None:
        truth, low = {"a": 5}, {"b": 2}
        for said in (truth, low, {"a": 2}, {"a": 1, "b": 3}):
            assert self.fits("stated", said, truth, low)
        for said in ({"a": 1}, {"a": 6}, {"c": 3}, {"a": 2, "c": 1}, None):
            assert not self.fits("stated", said, truth, low)

    @pytest.mark.parametrize("word", sorted(FIGURES))
    def test_figures_lie_between(self, word: str) -> None:
        assert [self.fits(word, said, 2.0, 1.0) for said in (0.9, 1.0, 1.5, 2.0, 2.1, None)] == [
            False,
            True,
            True,
            True,
            False,
            False,
        ]

    def test_of_every_client_its_own(self) -> None:
        truth, low = {"a": 2.0, "b": 3.0}, {"a": 1.0, "b": 3.0}
        assert self.fits("per_client", {"a": 1.5, "b": 3.0}, truth, low)
        for said in ({"a": 3.0, "b": 1.5}, {"a": 1.5}, {"a": 1.5, "b": 3.0, "c": 1.0}, {}, None):
            assert not self.fits("per_client", said, truth, low)

    def test_any_other_word_is_as_it_is(self) -> None:
        assert self.fits("unit", "sample", "sample", None)
        assert not self.fits("unit", "client", "sample", None)


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
