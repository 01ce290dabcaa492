"""Parts of `verify` that say what was compared and what was not, on a certificate by hand."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpfl.certificate.restated import COUNTED, FIGURES, RestatedStatement
from dpfl.certificate.run_checks import _data, _last_debit, _statement
from dpfl.certificate.verify import _without_run
from dpfl.privacy import Ledger
from dpfl.privacy.accounting.events import gaussian
from tests.certificate.test_figures_and_recompute import EPSILON, certificate


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
    ("told", "since"),
    [(EPSILON, False), (EPSILON - 1e-6, False), (EPSILON / 2, True), (99.0, False)],
)
def test_a_statement_from_before_says_so(told: float, since: bool) -> None:
    found: Any = SimpleNamespace(told=SimpleNamespace(proven=told))
    assert ("true when the run ended" in _statement(found, certificate()).outcome) is since


@pytest.mark.parametrize(("accountant", "said"), [(None, True), ("rdp", False)])
def test_a_claim_of_a_formula_is_said_to_be_unchecked_without_the_run(
    tmp_path: Path, accountant: str | None, said: bool
) -> None:
    run, *_ = _without_run(
        certificate(claimed={"epsilon": 1.0, "accountant": accountant}),
        tmp_path / "certificate.json",
    )
    assert ("which is of a formula" in run.unchecked[0]) is said


def test_data_that_no_file_describes_is_said_to_be_unchecked() -> None:
    folder: Any = SimpleNamespace(experiment=dict)
    assert "given from Python" in _data(folder, certificate()).unchecked[0]


class TestRestated:
    def fits(self, word: str, said: Any, truth: Any, low: Any) -> bool:
        restated = RestatedStatement.__new__(RestatedStatement)
        restated.__dict__["_low"] = {word: low}
        return restated._fits(word, said, truth)

    @pytest.mark.parametrize("word", sorted(COUNTED))
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
