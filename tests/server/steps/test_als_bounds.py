import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfl.errors import DpflError
from dpfl.server.steps.ali_bounds import noise_energy
from dpfl.server.steps.als_bounds import (
    AlsInputs,
    Theorem2,
    best_tau,
    h,
    margin,
    phi_of_theorem,
    raw_estimates,
    released_estimates,
    theorem_gap,
    wang_gap,
)

# Item 1.8 of the notes on the papers: the set-up of the paper, and one in which A is 0.5 without
# any noise.
PAPER = AlsInputs(rho=1, beta=1, xi=0.5, eta=0.5, sigma=1.1, C=1, d=26_010, B=64)
QUIET = AlsInputs(rho=1, beta=1, xi=0.5, eta=0.01, sigma=0, C=1, d=26_010, B=64)


@st.composite
def inputs(draw: st.DrawFn) -> AlsInputs:
    def between(low: float, high: float) -> float:
        return draw(st.floats(low, high))

    return AlsInputs(
        rho=between(0.01, 10),
        beta=between(0.01, 10),
        xi=between(0.01, 10),
        eta=between(1e-3, 1),
        sigma=between(0, 5),
        C=between(0.01, 10),
        d=draw(st.integers(1, 1_000_000)),
        B=between(0.5, 1000),
    )


def test_A_and_h_have_their_known_values() -> None:
    assert math.isclose(PAPER.A, 6.043868, abs_tol=5e-7)
    assert h([1, 2, 3], PAPER) == pytest.approx([0, 1.510967, 5.288385], abs=5e-7)


@pytest.mark.parametrize(("R_s", "expected"), [(317, 1), (158, 3), (62, 6)])
def test_the_search_finds_the_known_values(R_s: int, expected: int) -> None:
    found = best_tau(QUIET, previous=50, R_s=R_s, R_c=317, remaining=317, phi=0.025)
    assert (found.tau, found.bound) == (expected, "wang")


def test_h_is_the_sum_that_its_proof_makes_of_it() -> None:
    """(17): eta A ((eta beta + 1)^(z - 1) - 1), summed over z = 1 ... x."""
    total = 0.0
    for x in range(1, 30):
        total += 0.5 * PAPER.A * (1.5 ** (x - 1) - 1)
        assert float(h(x, PAPER)) == pytest.approx(total, abs=1e-9)


@given(case=inputs())
def test_h_vanishes_at_none_and_one_step_then_grows_and_is_convex(case: AlsInputs) -> None:
    curve = h(np.arange(0, 101), case)
    scale = case.A * case.eta
    assert curve[:2] == pytest.approx([0, 0], abs=1e-9 * scale)
    assert (np.diff(curve[1:]) > 0).all()
    assert (np.diff(curve, 2) >= -1e-9 * curve[1:-1] - 1e-9 * scale).all()


@given(case=inputs(), more=st.floats(0.1, 5), x=st.integers(2, 100))
def test_h_grows_with_divergence_and_with_noise(case: AlsInputs, more: float, x: int) -> None:
    assert float(h(x, replace(case, xi=case.xi + more))) > float(h(x, case))
    assert float(h(x, replace(case, sigma=case.sigma + more))) > float(h(x, case))


def test_without_curvature_clients_do_not_drift_apart() -> None:
    assert h([1, 2, 50], replace(PAPER, beta=0.0)).tolist() == [0, 0, 0]
    assert float(h(50, replace(PAPER, beta=1e-6))) == pytest.approx(
        PAPER.A * 0.25 * 1e-6 * 50 * 49 / 2, rel=1e-3
    )


def test_a_bound_beyond_all_numbers_still_has_an_order() -> None:
    wild = replace(PAPER, beta=1e9)
    assert np.isfinite(wang_gap(np.arange(1, 101), 317, wild)).all()
    assert best_tau(wild, 50, 158, 317, 317).tau == 1
    assert best_tau(replace(wild, rho=0.0), 50, 158, 317, 317).tau == 3


def test_the_phi_of_the_theorem_is_hugely_negative_and_leaves_the_theorem_undefined() -> None:
    phi = phi_of_theorem(omega=1.0, lam=0.5, inputs=PAPER)
    assert phi == pytest.approx(0.75 - 1.1**2 * 26_010 / 0.25)
    theorem = Theorem2(phi, 0.5)
    taus = np.arange(1, 101)
    assert (margin(taus, PAPER, theorem) < 0).all()
    assert np.isinf(theorem_gap(taus, 317, PAPER, theorem)).all()
    assert best_tau(PAPER, 50, 158, 317, 317, theorem).bound == "wang"


def test_the_theorem_is_defined_exactly_where_its_margin_is_above_nothing() -> None:
    """eta phi lambda^2 / rho = 0.5: h / tau is 0, 0.5, ... for A = 4, beta = 1, eta = 0.5, so tau =
    2 is the edge.
    """
    case = AlsInputs(rho=1, beta=1, xi=4, eta=0.5, sigma=0, C=1, d=10, B=1)
    theorem = Theorem2(phi=1.0, lam=1.0)
    assert margin([1, 2, 3], case, theorem) == pytest.approx([0.5, 0.0, 0.5 - 3.5 / 3])
    assert margin([2, 3], case, Theorem2(phi=1.0, lam=0.5)) == pytest.approx(
        [0.5 - 2.0, 0.5 - 14 / 3]
    )
    gaps = theorem_gap([1, 3], [100, 100], case, theorem)
    assert gaps.tolist() == [pytest.approx(1 / 50 + 1 / math.sqrt(3)), math.inf]
    assert best_tau(case, 50, 10, 100, 100, theorem).tau == 1


def test_where_the_theorem_holds_it_is_what_the_search_minimises() -> None:
    theorem = Theorem2(phi=2.0, lam=0.9)
    taus = np.arange(1, 101)
    T = np.minimum(62 * taus, 317)
    by_hand = [
        (1 / (t * (0.02 - float(h(tau, QUIET)) / (tau * 0.81))), tau)
        for tau, t in zip(taus, T, strict=True)
        if 0.02 - float(h(tau, QUIET)) / (tau * 0.81) > 0
    ]
    found = best_tau(QUIET, 50, 62, 317, 317, theorem)
    assert (found.tau, found.bound) == (min(by_hand)[1], "theorem 2")
    assert found.tau > 1


def test_the_fallback_is_the_bound_of_wang_et_al_written_out() -> None:
    """1 / (2 eta phi T) + sqrt(1 / (2 eta phi T)^2 + rho h / (eta phi tau)) + rho h."""
    case, tau, T, phi = replace(PAPER, rho=0.7), 4, 120, 0.03
    gap = 0.7 * float(h(tau, case))
    half = 1 / (2 * 0.5 * phi * T)
    assert float(wang_gap(tau, T, case, phi)) == pytest.approx(
        half + math.sqrt(half**2 + gap / (0.5 * phi * tau)) + gap
    )


@given(case=inputs(), R_c=st.integers(1, 2000), spare=st.integers(0, 500))
def test_with_rounds_to_spare_one_step_is_best(case: AlsInputs, R_c: int, spare: int) -> None:
    assert best_tau(case, 50, R_c + spare, R_c, R_c).tau == 1


@given(
    case=inputs(),
    previous=st.integers(1, 100),
    R_s=st.integers(1, 500),
    R_c=st.integers(1, 2000),
    data=st.data(),
)
def test_the_search_stays_in_its_range_and_nothing_in_it_is_better(
    case: AlsInputs, previous: int, R_s: int, R_c: int, data: st.DataObject
) -> None:
    left = data.draw(st.integers(1, R_c))
    found = best_tau(case, previous, R_s, R_c, left).tau
    assert 1 <= found <= min(2 * previous, 100, left)
    taus = np.arange(1, min(2 * previous, 100, left) + 1)
    gaps = wang_gap(taus, np.minimum(R_s * taus, R_c), case)
    assert gaps[found - 1] <= gaps.min()


def test_tau_can_double_in_a_round_and_no_more() -> None:
    seen = [1]
    for _ in range(5):
        seen.append(best_tau(QUIET, seen[-1], 62, 317, 317).tau)
    assert seen == [1, 2, 4, 6, 6, 6]


@pytest.mark.parametrize("name", ["rho", "beta", "xi", "eta", "sigma", "C", "d", "B"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_inputs_that_are_no_numbers_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(
        DpflError, match=rf"^{name} must be a finite number (above|of at least) 0, not {value}\.$"
    ):
        replace(PAPER, **{name: value})


@pytest.mark.parametrize("place", [1, 2, 3, 4])
def test_a_search_without_room_is_refused(place: int) -> None:
    counts = [5, 158, 317, 317]
    counts[place - 1] = 0
    with pytest.raises(DpflError, match="of at least 1, not 0"):
        best_tau(QUIET, *counts)


@pytest.mark.parametrize("phi", [0.0, -1.0, math.nan])
def test_the_fallback_needs_a_positive_phi(phi: float) -> None:
    with pytest.raises(DpflError, match=r"^phi must be a finite number above 0"):
        wang_gap(1, 10, QUIET, phi)


@pytest.mark.parametrize(
    ("phi", "lam"), [(1.0, 0.0), (1.0, math.nan), (math.nan, 1.0), (math.inf, 1.0)]
)
def test_the_theorem_needs_numbers(phi: float, lam: float) -> None:
    with pytest.raises(DpflError, match="must be a finite number"):
        Theorem2(phi, lam)


def test_published_estimates_are_weighted_means() -> None:
    found = raw_estimates([0.2, 0.3], [1.0, 6.0], [2.0, 3.0], [1.0, 2.0], [1, 3])
    assert (found.rho, found.beta, found.xi) == pytest.approx((0.1, 0.25 * 0.5 + 0.75 * 2, 1.75))


SIZE, SIGMA, BATCH = 2000, 1.1, 30.0
NOISE = noise_energy(SIGMA, 1.0, SIZE, BATCH)


def unit(rng: np.random.Generator) -> np.ndarray:
    vector = rng.standard_normal(SIZE)
    return vector / np.linalg.norm(vector)


def test_sound_estimates_find_the_raw_ones_behind_the_noise() -> None:
    """Clients with gradients of size 0.6, 0.4 away from their mean, on losses of curvature 0.9."""
    rng = np.random.default_rng(0)
    weights = np.array([1.0, 2.0] * 100)
    p = weights / weights.sum()

    def noise() -> np.ndarray:
        return SIGMA / BATCH * rng.standard_normal((200, SIZE))

    common = unit(rng)
    own = np.array([0.4 * unit(rng) for _ in weights])
    gradients = math.sqrt(0.6**2 - 0.4**2) * common + own - p @ own
    move = np.array([unit(rng) for _ in weights])
    seen, later = gradients + noise(), gradients + 0.9 * move + noise()
    norm = np.linalg.norm
    found = released_estimates(
        norms=norm(seen, axis=1),
        differences=norm(later - seen, axis=1),
        distances=norm(move, axis=1),
        divergences=norm(seen - p @ seen, axis=1),
        weights=weights,
        noises=[NOISE] * 200,
        d=SIZE,
        C=1.0,
    )
    assert found.rho == pytest.approx(0.6, rel=0.03)
    assert found.beta == pytest.approx(0.9, rel=0.03)
    assert found.xi == pytest.approx(0.4, rel=0.05)


def test_a_client_s_noise_meets_itself_in_the_mean() -> None:
    """Two equal clients: each is half a difference away from the mean, so only half of one noise is
    in it.
    """
    found = released_estimates([0, 0], [0, 0], [1, 1], [1.0, 1.0], [1, 1], [0.6, 0.6], 10**6, 1.0)
    assert found.xi == pytest.approx(math.sqrt(1 - 0.3))


def test_unequal_noise_is_removed_client_by_client() -> None:
    """Weights 1/4 and 3/4, noises 0.8 and 0.4: (1 - 2p) v + sum p^2 v is 0.675 and 0.075."""
    found = released_estimates([1, 1], [0, 0], [1, 1], [1.0, 1.0], [1, 3], [0.8, 0.4], 10**6, 1.0)
    assert found.xi == pytest.approx(math.sqrt(1 - (0.25 * 0.675 + 0.75 * 0.075)))
    assert found.rho == pytest.approx(math.sqrt(1 - (0.25 * 0.8 + 0.75 * 0.4)))


def test_clipping_bounds_rho_whatever_was_seen() -> None:
    found = released_estimates([9.0], [1.0], [1.0], [0.0], [1], [0.5], SIZE, 0.3)
    assert found.rho == 0.3


def test_one_client_does_not_diverge_from_itself() -> None:
    found = released_estimates([1.0], [1.0], [1.0], [0.0], [7], [0.5], SIZE, 1.0)
    assert found.xi == 0.0


def test_values_below_their_noise_stay_positive() -> None:
    found = released_estimates([0, 0], [0, 0], [1, 1], [0, 0], [1, 1], [NOISE, NOISE], SIZE, 1.0)
    floor = math.sqrt(2 / SIZE) * NOISE / math.sqrt(2)
    assert found.rho == pytest.approx(math.sqrt(floor))
    assert found.beta == pytest.approx(math.sqrt(2 * floor))
    assert found.xi == pytest.approx(math.sqrt(floor / 2))


@pytest.mark.parametrize("place", range(6))
def test_estimates_refuse_what_is_not_a_number(place: int) -> None:
    values: list[list[float]] = [[1.0], [1.0], [1.0], [1.0], [1.0], [0.1]]
    values[place] = [math.nan]
    with pytest.raises(DpflError, match="of a client is not a finite number of at least 0"):
        released_estimates(*values, SIZE, 1.0)
    if place < 5:
        with pytest.raises(DpflError, match="of a client is not a finite number of at least 0"):
            raw_estimates(*values[:5])


def test_estimates_without_a_move_or_a_clip_are_refused() -> None:
    with pytest.raises(DpflError, match="No client's model has moved"):
        released_estimates([1.0], [1.0], [0.0], [1.0], [1], [0.1], SIZE, 1.0)
    with pytest.raises(DpflError, match="No client's model has moved"):
        raw_estimates([1.0], [1.0], [0.0], [1.0], [1])
    with pytest.raises(DpflError, match=r"^C must be a finite number above 0"):
        released_estimates([1.0], [1.0], [1.0], [1.0], [1], [0.1], SIZE, math.nan)
