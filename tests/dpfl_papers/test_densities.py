"""The noise on one element of a gradient against its closed form."""

from __future__ import annotations

import math

import pytest

from dpfl_papers import PaperTable


def test_figure_4_has_the_deviations_of_one_number(paper_tables: dict[str, PaperTable]) -> None:
    """m = 32,768 for 26,010 numbers: sigma sqrt(1/3 + 2 / (3 m^2)), 0.343 of that by Lemma 2, and m
    times it for the claim.
    """
    m = 32768
    each = math.sqrt(1 / 3 + 2 / (3 * m * m))
    expected = {"DP-SGD": 1.0, "DP-SGD-WAV, published": each, "DP-SGD-WAV, for its claim": m * each}
    expected["DP-SGD-WAV, published, Lemma 2"] = each * math.sqrt(2 / 17)
    for cell in paper_tables["wavelet-fig4"].cells:
        sigma = float(cell.column.removeprefix("sigma "))
        assert cell.work.run(0, None).value == pytest.approx(sigma * expected[cell.row])
