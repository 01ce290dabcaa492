"""What a report shows of an epsilon."""

from __future__ import annotations

import csv

from hypothesis import given
from hypothesis import strategies as st

from dpfl_papers import Outcome
from dpfl_papers.runner import OutcomeStore
from dpfl_papers.table_report import collect, markdown, shown_epsilon, write_csv
from tests.dpfl_papers.conftest import small_table


@given(st.floats(1e-3, 1e12))
def test_an_epsilon_in_a_few_digits_is_never_below_the_figure_and_hardly_above(
    epsilon: float,
) -> None:
    assert (
        epsilon * (1 - 1e-6)
        <= float(shown_epsilon(epsilon))
        <= max(epsilon + 0.0011, 1.11 * epsilon if epsilon >= 1e4 else 0)
    )


def test_what_is_no_number_is_said_in_a_word() -> None:
    assert (shown_epsilon(None), shown_epsilon("unbounded")) == ("none", "unbounded")


def test_the_report_has_our_number_beside_the_papers_and_both_epsilons(tmp_path):
    chosen = small_table(1.0)
    kept = OutcomeStore(tmp_path)
    for seed, value in enumerate((40.0, 41.0, 42.0)):
        kept.put(
            chosen.cells[0].digest(seed),
            Outcome(value, claimed=3.4, proven=2.71828, steps=7, rounds=2),
        )
    made = collect(chosen, range(3), kept)
    text = markdown(chosen, made, ["budget.rounds=2"])
    # t(0.975, 2) * 1 / sqrt(3)
    assert "41.00 ± 2.48 (3 seeds) [50]" in text
    assert "3.5; 2.719; 7" in text
    assert "`budget.rounds=2`" in text
    assert "Something was open." in text
    write_csv(made, tmp_path / "r.csv")
    rows = list(csv.DictReader((tmp_path / "r.csv").open()))
    assert [rows[0][name] for name in ("seed", "value", "printed", "proven")] == [
        "0",
        "40",
        "50.0",
        "2.71828",
    ]
