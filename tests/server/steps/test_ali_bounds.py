import math
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from dpfl.errors import DpflError
from dpfl.server.steps.ali_bounds import (
    AliInputs,
    Formula,
    G,
    h,
    next_tau,
    tau_star,
    total_iterations,
    whole_tau,
)

FORMULAS: tuple[Formula, ...] = get_args(Formula)
# The set-up of the paper with the model of ALS-DPFL; eta is the step size of the proof, 2 / (mu T).
PAPER = AliInputs(mu=1, C=1, Gamma=10, sigma=1.1, d=26_010, B=90, T=317, eta=2 / 317)


@st.composite
def inputs(draw: st.DrawFn) -> AliInputs:
    def between(low: float, high: float) -> float:
        return draw(st.floats(low, high))

    return AliInputs(
        mu=between(0.01, 10),
        C=between(0.01, 10),
        Gamma=between(0, 100),
        sigma=between(0, 5),
        d=draw(st.integers(1, 1_000_000)),
        B=between(0.5, 1000),
        T=draw(st.integers(1, 3000)),
        eta=between(1e-3, 2),
        L=between(0.1, 10),
        Delta=between(0, 100),
    )


# Section 1.2 of the notes on the papers, to the digits given there.
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (25.494249, 25.474228, 18.042269, 18.030956)),
        ({"d": 582_026}, (6.125514, 6.120824, 4.415706, 4.413139)),
        ({"Gamma": 0.0}, (1.453380, 1.452779, 1.452779, 1.304789)),
    ],
)
def test_tau_star_has_its_known_values(
    changes: dict[str, Any], expected: tuple[float, ...]
) -> None:
    case = replace(PAPER, **changes)
    for formula, value in zip(FORMULAS, expected, strict=True):
        assert tau_star(case, formula) == pytest.approx(value, abs=5e-7)


def test_a_batch_of_less_than_one_sample_leaves_nothing_but_noise_in_tau_star() -> None:
    """Item 1.5: with q n_i below 1 the noise drowns the rest, and tau* goes to sqrt(1 + 1 / (2 + 1
    / T)).
    """
    tiny = replace(PAPER, B=0.015 * 3)
    assert tau_star(tiny, "printed") == pytest.approx(1.2244, abs=2e-4)
    assert tau_star(replace(tiny, B=1e-4), "printed") == pytest.approx(
        math.sqrt(1 + 1 / (2 + 1 / 317)), abs=1e-8
    )
    assert next_tau(tiny, 158, 317, 317) == 1


def test_h_is_equation_8_written_out() -> None:
    case = AliInputs(
        mu=0.5, C=2.0, Gamma=3.0, sigma=1.5, d=40, B=8.0, T=20, eta=0.1, L=1.7, Delta=2.5
    )
    n = 1.5**2 * 2.0**2 * 40 / 8.0**2
    eta = 1 / (0.5 * 20)
    for tau in (1.0, 2.5, 9.0):
        rise = (2 + eta * 0.5) * (4 + n)
        square = 1.7 * rise / 40
        linear = (1.7 * 2.5 - 2 * 1.7 * rise) / 40
        constant = 1.7 * (rise + 4 / 0.25 + 12 + 6 / eta + n) / 40
        assert h(tau, case, "printed") == pytest.approx(
            square * tau**2 + linear * tau + constant, rel=1e-12
        )


def test_the_corrected_bound_uses_the_learning_rate_and_has_no_slip() -> None:
    case = AliInputs(
        mu=0.5, C=2.0, Gamma=3.0, sigma=0.0, d=40, B=8.0, T=20, eta=0.25, L=1.0, Delta=0.0
    )
    assert h(3.0, case) == pytest.approx(((2 + 0.125) * 4 * 4 + 12 + 24) / 40)
    assert tau_star(case) == pytest.approx(math.sqrt(1 + 36 / (2.125 * 4)))


@pytest.mark.parametrize("formula", FORMULAS)
@given(case=inputs())
def test_tau_star_minimises_its_own_G_among_real_numbers(formula: Formula, case: AliInputs) -> None:
    best = tau_star(case, formula)
    assert best >= 1
    found = minimize_scalar(
        lambda log: float(G(math.exp(log), case, formula)),
        bounds=(-1, math.log(best) + 3),
        method="bounded",
    )
    assert float(G(best, case, formula)) <= found.fun * (1 + 1e-9)
    away = G(best * np.array([0.5, 0.9, 1.1, 2.0]), case, formula)
    assert (away > G(best, case, formula)).all()


@pytest.mark.parametrize("formula", FORMULAS)
@given(case=inputs(), tau=st.floats(1, 100))
def test_h_is_tau_over_T_times_G(formula: Formula, case: AliInputs, tau: float) -> None:
    assert float(h(tau, case, formula)) == pytest.approx(
        tau / case.T * float(G(tau, case, formula))
    )


@pytest.mark.parametrize("formula", FORMULAS)
@given(case=inputs())
def test_the_bound_is_convex_and_without_limits_on_rounds_one_iteration_is_best(
    formula: Formula, case: AliInputs
) -> None:
    curve = h(np.arange(1, 101), case, formula)
    assert (np.diff(curve, 2) >= -1e-9 * curve[1:-1]).all()
    assert curve.argmin() == 0


@pytest.mark.parametrize("formula", FORMULAS)
@given(case=inputs(), more=st.floats(0.1, 100))
def test_more_heterogeneous_data_raises_the_bound_and_tau(
    formula: Formula, case: AliInputs, more: float
) -> None:
    worse = replace(case, Gamma=case.Gamma + more)
    assert (h(np.arange(1, 50), worse, formula) > h(np.arange(1, 50), case, formula)).all()
    assert tau_star(worse, formula) > tau_star(case, formula)


@given(case=inputs(), factor=st.floats(1.5, 10))
def test_smoothness_and_the_first_distance_leave_tau_as_it_is(
    case: AliInputs, factor: float
) -> None:
    other = replace(case, L=factor * case.L, Delta=factor + case.Delta)
    assert tau_star(other) == tau_star(case)
    assert float(h(2.0, other)) > float(h(2.0, case))


@given(case=inputs())
def test_the_printed_and_the_consistent_formula_are_G_at_two_step_sizes(case: AliInputs) -> None:
    """At eta = k / (mu T) the corrected formula plus the slip is the printed one for k = 1, the
    consistent one for k = 2.
    """
    for formula, k in (("printed", 1), ("consistent", 2)):
        bare = replace(case, eta=k / (case.mu * case.T))
        rise = (2 + bare.eta * case.mu) * (case.C**2 + case.noise)
        assert tau_star(case, formula) ** 2 - tau_star(bare) ** 2 == pytest.approx(
            4 / case.mu**2 / rise, rel=1e-5, abs=1e-9
        )


def test_one_iteration_in_all_and_no_heterogeneity_are_allowed() -> None:
    case = replace(PAPER, T=1, Gamma=0.0, sigma=0.0)
    assert [tau_star(case, formula) for formula in FORMULAS] == pytest.approx(
        [
            math.sqrt(1 + 7 / 3),
            math.sqrt(1 + 7 / 4),
            math.sqrt(1 + 7 / 4),
            math.sqrt(1 + 3 / (2 + 2 / 317)),
        ],
        abs=1e-6,
    )


@pytest.mark.parametrize("formula", FORMULAS)
def test_without_curvature_the_slip_makes_tau_as_large_as_it_may_be(formula: Formula) -> None:
    flat = replace(PAPER, mu=0.0)
    if formula == "corrected":
        assert 1 < tau_star(flat, formula) < math.inf
    else:
        assert tau_star(flat, formula) == math.inf
        assert next_tau(flat, 158, 317, 317, formula) == 100


@pytest.mark.parametrize("name", ["mu", "C", "Gamma", "sigma", "d", "B", "T", "eta", "L", "Delta"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_inputs_that_are_no_numbers_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(
        DpflError, match=rf"^{name} must be a finite number (above|of at least) 0, not {value}\.$"
    ):
        replace(PAPER, **{name: value})


@pytest.mark.parametrize("name", ["C", "d", "B", "eta", "L"])
def test_inputs_that_are_divided_by_may_not_vanish(name: str) -> None:
    with pytest.raises(DpflError, match=f"^{name} must be a finite number above 0"):
        replace(PAPER, **{name: 0})


def test_less_than_one_iteration_in_all_is_refused() -> None:
    with pytest.raises(DpflError, match=r"^T must be a finite number of at least 1"):
        replace(PAPER, T=0.5)


def test_an_unknown_formula_is_refused_with_the_known_ones() -> None:
    with pytest.raises(DpflError, match="choose one of printed, code, consistent, corrected"):
        tau_star(PAPER, "exact")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tau", "left", "expected"),
    [
        (0.2, 9, 1),
        (1.49, 9, 1),
        (1.5, 9, 2),
        (2.5, 9, 3),
        (2.6, 9, 3),
        (25.5, 9, 9),
        (1e9, 317, 100),
        (math.inf, 317, 100),
    ],
)
def test_tau_is_rounded_to_the_nearest_clamped_and_capped(
    tau: float, left: int, expected: int
) -> None:
    assert whole_tau(tau, left) == expected


@given(tau=st.floats(0, allow_nan=False), left=st.integers(1, 5000))
def test_a_whole_tau_is_inside_every_limit_and_near_where_no_limit_holds(
    tau: float, left: int
) -> None:
    found = whole_tau(tau, left)
    assert 1 <= found <= min(100, left)
    if 1 <= tau <= min(100, left):
        assert abs(found - tau) <= 0.5


def test_no_tau_comes_of_nothing() -> None:
    with pytest.raises(DpflError, match=r"tau\* is not a number"):
        whole_tau(math.nan, 5)
    with pytest.raises(
        DpflError, match="iterations left must be a finite number of at least 1, not 0"
    ):
        whole_tau(3.0, 0)


def test_rounds_that_suffice_for_every_iteration_mean_one_iteration_each() -> None:
    assert (
        next_tau(PAPER, R_s=317, R_c=317, remaining=317)
        == next_tau(PAPER, R_s=634, R_c=317, remaining=317)
        == 1
    )
    assert next_tau(PAPER, R_s=316, R_c=317, remaining=317) == 18
    assert next_tau(PAPER, R_s=158, R_c=317, remaining=317, formula="printed") == 25
    assert next_tau(PAPER, R_s=158, R_c=317, remaining=4) == 4


def test_T_is_what_both_budgets_allow() -> None:
    assert total_iterations([1, 2, 3], 158, 317).tolist() == [158, 316, 317]
    assert float(total_iterations(5, 158, 317)) == 317
