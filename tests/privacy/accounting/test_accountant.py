"""Epsilon against printed values, against the definition, and against itself."""

import importlib
import itertools
import math

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.errors import DpflError
from dpfl.privacy import ACCOUNTANTS, FixedSize, Limit, accountant, affordable
from dpfl.privacy.accounting.accountant import (
    _second_order_epsilon,
    default_accountant,
    gaussian_delta,
    proven_accountant,
)
from dpfl.privacy.accounting.events import add
from tests.privacy.exact import composed_poisson, one_fixed_size_step, one_poisson_step, poisson

DELTA = 1e-5
ALI = poisson(0.015, 1.1)
"""The event of ALI-DPFL and ALS-DPFL (NOTES 1)."""
EPSILONS = (1.55, 1.75, 2, 2.5, 2.75, 3.25, 3.75, 5.25)
CLASSIC = (78, 174, 314, 596, 770, 1119, 1537, 3007)
PLD = (422, 545, 716, 1115, 1341, 1843, 2408, 4440)

rates = st.floats(0.005, 0.5)
multipliers = st.floats(0.9, 6.0)
events = st.one_of(
    st.builds(poisson, rates, multipliers), st.builds(dp.GaussianDpEvent, st.floats(2.0, 40.0))
)
spends = st.dictionaries(events, st.integers(1, 200), min_size=1, max_size=3)


def epsilon(name, event, count=1, delta=DELTA):
    return accountant(name).epsilon({event: count}, delta)


@pytest.mark.parametrize(("budget", "iterations"), list(zip(EPSILONS, CLASSIC, strict=True)))
def test_the_classic_conversion_buys_the_iterations_of_the_papers(budget, iterations):
    assert affordable({}, ALI, budget, DELTA, accountant("rdp-classic")) == iterations


@pytest.mark.parametrize("best", [2, 3, 63, 64, 128, 256, 512, 600])
def test_the_classic_conversion_is_the_least_over_the_orders_of_the_first_papers(best):
    """For a Gaussian whose divergence is least at the order `best` among all orders; by hand."""
    orders = np.array([*range(2, 64), 128, 256, 512])
    rho = math.log(1 / DELTA) / (best - 1) ** 2
    by_hand = np.min(orders * rho + math.log(1 / DELTA) / (orders - 1))
    assert epsilon("rdp-classic", dp.GaussianDpEvent(math.sqrt(1 / (2 * rho)))) == pytest.approx(
        by_hand, rel=1e-12
    )


@pytest.mark.parametrize(
    ("budget", "iterations"),
    [pair for pair in zip(EPSILONS, PLD, strict=True) if pair[0] in (1.55, 2.5, 5.25)],
)
def test_the_tight_accountant_crosses_each_budget_between_two_known_counts(budget, iterations):
    assert epsilon("pld", ALI, iterations) <= budget < epsilon("pld", ALI, iterations + 1)


def test_the_tight_accountant_buys_716_iterations_for_epsilon_2():
    assert affordable({}, ALI, 2.0, DELTA, accountant("pld")) == 716


def test_improved_renyi_accounting_buys_553_iterations_for_epsilon_2():
    assert affordable({}, ALI, 2.0, DELTA, accountant("rdp")) == 553


@pytest.mark.parametrize(
    ("name", "expected"), [("rdp-classic", 2.0050), ("rdp", 1.6121), ("pld", 1.3571)]
)
def test_317_iterations_cost_what_the_notes_say(name, expected):
    assert epsilon(name, ALI, 317) == pytest.approx(expected, abs=5.1e-5)


@pytest.mark.parametrize(
    ("mu", "expected"), [(1, 4.377178), (2, 9.997256), (math.sqrt(8), 15.456156), (8, 65.319220)]
)
def test_a_gaussian_release_costs_its_exact_epsilon(mu, expected):
    for name in ("pld", "gdp-clt"):
        assert epsilon(name, dp.GaussianDpEvent(1 / mu)) == pytest.approx(expected, abs=2e-6)
    assert gaussian_delta(mu, expected) == pytest.approx(DELTA, rel=1e-4)
    assert epsilon("rdp", dp.GaussianDpEvent(1 / mu)) > expected


def test_one_subsampled_step_costs_its_exact_epsilon():
    assert epsilon("pld", poisson(0.01, 1.0)) == pytest.approx(0.199450, abs=2e-6)


@pytest.mark.parametrize(
    ("records", "batch", "multiplier", "epochs", "delta", "expected"),
    [(60_000, 150, 1.3, 15, 1e-5, 0.7242234026), (100_000, 100, 1.0, 30, 1e-7, 1.4154988495)],
)
def test_improved_renyi_accounting_agrees_with_tensorflow_privacy(
    records, batch, multiplier, epochs, delta, expected
):
    steps = epochs * records // batch
    assert epsilon("rdp", poisson(batch / records, multiplier), steps, delta) == pytest.approx(
        expected, abs=1e-9
    )


def test_renyi_accounting_agrees_with_opacus_up_to_its_orders():
    """Opacus has no order 11 and we have 128 to 1024; its fractional sums differ by some 2e-4 in
    epsilon.
    """
    assert epsilon("rdp", poisson(0.04, 1.5), 2250) == pytest.approx(7.32911117, abs=5e-4)


def test_the_tight_accountant_lies_just_below_the_error_bar_of_opacus_prv():
    """Opacus adds its eps_error of 0.01 to the PRV figure; ours must lie inside that bar."""
    assert 6.7773957 - 0.011 < epsilon("pld", poisson(0.04, 1.5), 2250) <= 6.7773957


@given(rate=st.floats(0.005, 0.9), multiplier=st.floats(0.5, 4.0))
@settings(max_examples=5, deadline=None)
def test_one_step_never_costs_less_than_the_definition_says(rate, multiplier):
    exact = one_poisson_step(rate, multiplier, DELTA)
    assert exact - 1e-6 <= epsilon("pld", poisson(rate, multiplier)) <= exact + 1e-3
    assert epsilon("rdp", poisson(rate, multiplier)) >= exact - 1e-6


@pytest.mark.parametrize(
    ("rate", "multiplier", "steps"), [(0.015, 1.1, 317), (0.05, 2.0, 200), (0.2, 5.0, 100)]
)
def test_many_steps_cost_what_a_convolution_of_the_privacy_loss_gives(rate, multiplier, steps):
    exact = composed_poisson(rate, multiplier, steps, DELTA)
    assert exact - 1e-4 <= epsilon("pld", poisson(rate, multiplier), steps) <= exact + 2e-3
    assert epsilon("rdp", poisson(rate, multiplier), steps) > exact


@given(spends)
@settings(max_examples=5, deadline=None)
def test_each_proven_accountant_is_at_least_as_tight_as_the_next(spent):
    tight, improved, classic = (
        accountant(name).epsilon(spent, DELTA) for name in ("pld", "rdp", "rdp-classic")
    )
    assert 0 <= tight <= improved + 1e-3
    assert improved <= classic + 1e-3


@given(spends)
@settings(max_examples=5, deadline=None)
def test_the_quick_figure_is_never_below_the_fine_one(spent):
    chosen = accountant("pld")
    assert chosen.quick.epsilon(spent, DELTA) >= chosen.epsilon(spent, DELTA) - 1e-9


@given(rates, multipliers, st.integers(1, 5000), st.integers(1, 500))
@settings(max_examples=20, deadline=None)
def test_epsilon_grows_with_every_further_release(rate, multiplier, count, more):
    event = poisson(rate, multiplier)
    assert epsilon("rdp", event, count) < epsilon("rdp", event, count + more)


@pytest.mark.parametrize("name", list(ACCOUNTANTS))
def test_the_order_of_releases_does_not_matter(name):
    releases = [(poisson(0.02, 1.2), 30), (dp.GaussianDpEvent(9.0), 2), (poisson(0.1, 3.0), 7)]
    figures = {
        accountant(name).epsilon(dict(order), DELTA) for order in itertools.permutations(releases)
    }
    assert len(figures) == 1


@pytest.mark.parametrize("name", list(ACCOUNTANTS))
def test_every_event_of_a_mixture_is_counted(name):
    spent = {poisson(0.02, 1.2): 30, dp.GaussianDpEvent(9.0): 2, poisson(0.1, 3.0): 7}
    whole = accountant(name).epsilon(spent, DELTA)
    for event in spent:
        rest = {other: count for other, count in spent.items() if other != event}
        assert accountant(name).epsilon(rest, DELTA) < whole - 1e-3


def test_a_mixture_costs_what_dp_accounting_says_of_it():
    spent = {poisson(0.02, 1.2): 30, dp.GaussianDpEvent(9.0): 2, poisson(0.1, 3.0): 7}
    reference = PLDAccountant(value_discretization_interval=1e-4)
    for event, count in spent.items():
        reference.compose(event, count)
    assert accountant("pld").epsilon(spent, DELTA) == pytest.approx(
        reference.get_epsilon(DELTA), abs=5e-4
    )
    renyi = dp.rdp.RdpAccountant()
    for event, count in spent.items():
        renyi.compose(event, count)
    assert accountant("rdp").epsilon(spent, DELTA) == pytest.approx(
        renyi.get_epsilon(DELTA), abs=1e-9
    )


@pytest.mark.parametrize("name", ["pld", "rdp", "gdp-clt"])
def test_four_gaussians_are_one_of_half_the_noise(name):
    assert epsilon(name, dp.GaussianDpEvent(4.0), 4) == pytest.approx(
        epsilon(name, dp.GaussianDpEvent(2.0)), abs=1e-6
    )


@pytest.mark.parametrize("name", list(ACCOUNTANTS))
def test_a_release_without_noise_makes_epsilon_infinite(name):
    assert accountant(name).epsilon({dp.NonPrivateDpEvent(): 1}, DELTA) == math.inf
    assert accountant(name).epsilon({ALI: 1, dp.NonPrivateDpEvent(): 1}, DELTA) == math.inf
    quick = accountant(name).quick
    assert quick is None or quick.epsilon({ALI: 1, dp.NonPrivateDpEvent(): 1}, DELTA) == math.inf


@pytest.mark.parametrize("name", list(ACCOUNTANTS))
def test_nothing_released_costs_nothing(name):
    assert accountant(name).epsilon({}, DELTA) == 0
    assert accountant(name).epsilon({ALI: 0}, DELTA) == 0


@pytest.mark.parametrize("name", list(ACCOUNTANTS))
@pytest.mark.parametrize("delta", [1e-10, 1e-7, 1e-3])
def test_a_smaller_delta_costs_a_larger_epsilon(name, delta):
    assert epsilon(name, ALI, 100, delta) > epsilon(name, ALI, 100, delta * 10)


def test_the_limit_theorem_lies_below_the_truth_and_is_not_called_proven():
    assert epsilon("gdp-clt", ALI, 317) < composed_poisson(0.015, 1.1, 317, DELTA) - 0.1
    assert not accountant("gdp-clt").proven


def test_the_limit_theorem_cannot_guard_a_budget():
    with pytest.raises(DpflError, match="approximation"):
        proven_accountant("gdp-clt")
    with pytest.raises(DpflError, match="approximation"):
        Limit(2.0, DELTA, "gdp-clt")


@pytest.mark.parametrize("name", ["pld", "rdp", "rdp-classic"])
def test_a_proven_accountant_may_guard_a_budget(name):
    assert proven_accountant(name) is accountant(name)
    assert accountant(name).proven


def test_an_unknown_accountant_is_named_with_those_there_are():
    with pytest.raises(DpflError, match=r"'moments'.*pld, rdp, rdp-classic, gdp-clt"):
        accountant("moments")


@pytest.mark.parametrize("name", ["rdp", "rdp-classic"])
@pytest.mark.parametrize(
    ("population", "size", "multiplier"),
    [(20, 5, 1.0), (100, 2, 0.8), (50, 40, 2.0), (10, 10, 2.0)],
)
def test_fixed_size_sampling_never_costs_less_than_one_unit_replaced_by_its_opposite(
    name, population, size, multiplier
):
    event = FixedSize(size).event(multiplier, population)
    assert epsilon(name, event) >= one_fixed_size_step(size / population, multiplier, DELTA)


def test_a_draw_of_everyone_costs_as_much_as_moving_by_two_norms():
    """Noise of 2 norms against a move of 2 norms is a Gaussian of multiplier 1, whose exact epsilon
    is 4.377.
    """
    assert 4.377 < epsilon("rdp", FixedSize(10).event(2.0, 10)) < 5.0


@pytest.mark.parametrize("name", ["pld", "gdp-clt"])
def test_fixed_size_sampling_is_refused_where_there_is_no_proof(name):
    with pytest.raises(DpflError, match="'rdp'"):
        epsilon(name, FixedSize(10).event(1.0, 100))


def test_the_default_accountant_has_a_proof_for_the_event():
    assert default_accountant(FixedSize(10).event(1.0, 100)) == "rdp"
    assert default_accountant(ALI) == default_accountant(dp.GaussianDpEvent(1.0)) == "pld"


@pytest.mark.parametrize("name", list(ACCOUNTANTS))
@pytest.mark.parametrize("other", [ALI, dp.GaussianDpEvent(1.0)])
def test_fixed_size_and_other_sampling_are_never_added_up(name, other):
    with pytest.raises(DpflError):
        accountant(name).epsilon({FixedSize(10).event(1.0, 100): 1, other: 1}, DELTA)


def test_adding_to_what_was_spent_leaves_the_original_alone():
    spent = {ALI: 3}
    assert add(spent, ALI, 2) == {ALI: 5}
    assert add(spent, dp.GaussianDpEvent(1.0), 1) == {ALI: 3, dp.GaussianDpEvent(1.0): 1}
    assert spent == {ALI: 3}


def test_numpy_counts_cost_the_same_as_plain_ones():
    assert accountant("rdp").epsilon({ALI: np.int64(317)}, DELTA) == epsilon("rdp", ALI, 317)


@given(st.floats(0.001, 1.0), st.floats(0.03, 5.0), st.integers(1, 100_000))
@settings(max_examples=25, deadline=None)
def test_one_order_never_says_less_than_all_of_them(rate, z, count):
    event = poisson(rate, z) if rate < 1 else dp.GaussianDpEvent(z)
    assert _second_order_epsilon(frozenset({(event, count)}), DELTA) >= epsilon(
        "rdp", event, count
    ) * (1 - 1e-9)


def test_the_order_of_events_changes_no_bit_of_a_figure() -> None:
    """The order of a set follows hashes that change from process to process. Noise is planned from
    these figures, so two processes would plan two runs."""
    events = [
        (dp.PoissonSampledDpEvent(0.05, dp.GaussianDpEvent(0.47 * 1.1**phase)), 3)
        for phase in range(8)
    ]
    events += [(dp.GaussianDpEvent(3.0), 2), (dp.GaussianDpEvent(1.7), 1)]
    accountants = importlib.import_module(
        "dpfl.privacy.accounting.accountant"
    )  # the package has a function of that name
    figures = set()
    for turn in range(6):
        turned = (*events[turn:], *events[:turn])
        composed = accountants._compose(turned, accountants.COARSE).epsilon(1e-5)
        _, divergences = accountants._rdp_total(turned, classic=True)
        second = accountants._second_order_epsilon(turned, 1e-5)
        figures.add(
            (composed, divergences.tobytes(), second, accountants._unsampled_epsilon(turned, 1e-5))
        )
    assert len(figures) == 1
