"""What the ALI-DPFL paper prints."""

from __future__ import annotations

import pytest

from dpfl.privacy import Poisson, accountant
from dpfl_papers import ali
from dpfl_papers.ali_printed import METHODS, STEPS_OF_EPSILON, parse_rows
from tests.dpfl_papers.conftest import cell_at


@pytest.mark.parametrize(
    ("table", "group", "row", "column", "printed"),
    [
        ("ali-2", "MNIST", "PE-DPFL", "R_s = 2 R_c", 80.12),
        ("ali-2", "CIFAR-10", "ALI-DPFL", "R_s = R_c / 5", 53.54),
        ("ali-3", "MNIST", "ALI-DPFL", "R_s = R_c,", 97.59),
        ("ali-3", "Fashion-MNIST", "tau = 1", "R_s = R_c,", 83.71),
        ("ali-3", "CIFAR-10", "ALI-DPFL", "R_s = R_c / 5", 55.67),
        ("ali-4", "MNIST", "tau = 5", "R_s = R_c / 2", 98.85),
        ("ali-4", "CIFAR-10", "tau = 10", "R_s = R_c / 5", 54.55),
        ("ali-5", "Fashion-MNIST", "tau = 3", "IID", 89.46),
        ("ali-5", "Fashion-MNIST", "ALI-DPFL", "Dir(1)", 86.12),
    ],
)
def test_printed_numbers_are_carried_over(table, group, row, column, printed):
    assert cell_at(table, group, row, column).printed == printed


def test_the_papers_epsilon_is_the_classic_one_of_its_steps_up_to_the_overshoot_of_its_bisection():
    """But for 5 x 317 and 5 x 598, which it takes for what 3.75 and 5.25 buy."""
    event = Poisson(ali.SAMPLING_RATE).event(ali.NOISE, 1)
    found = {
        epsilon: accountant("rdp-classic").epsilon({event: steps}, ali.DELTA)
        for epsilon, steps in STEPS_OF_EPSILON.items()
    }
    assert found.pop(3.75) == pytest.approx(3.806, abs=1e-3)
    assert found.pop(5.25) == pytest.approx(5.233, abs=1e-3)
    assert list(found.values()) == pytest.approx(list(found), abs=0.01)


def test_a_line_of_numbers_belongs_to_each_method():
    rows = parse_rows("\n".join(f"{number} 0.5" for number in range(len(METHODS))))
    assert list(rows) == list(METHODS)
    assert rows[METHODS[1]] == [1.0, 0.5]
    with pytest.raises(ValueError, match="shorter"):
        parse_rows("1.0 2.0")
