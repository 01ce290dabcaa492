"""Calibration: the most releases that fit, the least noise that does."""

import math

import dp_accounting as dp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.errors import DpflError
from dpfl.privacy import FixedSize, accountant, affordable, noise_for
from dpfl.privacy.accounting.calibration import MAX_RELEASES, check_target, noise_near
from dpfl.privacy.accounting.events import add
from tests.privacy.exact import poisson

DELTA = 1e-5
RDP = accountant("rdp")
PLD = accountant("pld")
COHORT = 80 / 1920
NOTED = {50: 1.3209, 100: 1.5302, 200: 1.9130, 500: 2.7766}
"""NOTES 3.4: rounds to noise multiplier, for epsilon 1.5 and the orders 2..63, 128, 256, 512."""


def assert_least(plan, target, found, by):
    assert by.epsilon(plan(found), DELTA) <= target
    assert by.epsilon(plan(found * (1 - 3e-4)), DELTA) > target


@given(rate=st.floats(0.005, 0.5), steps=st.integers(1, 3000), target=st.floats(0.3, 10.0))
@settings(max_examples=5, deadline=None)
def test_planned_noise_is_enough_and_hardly_more(rate, steps, target):
    def plan(z):
        return {poisson(rate, z): steps}

    assert_least(plan, target, noise_for(plan, target, DELTA, RDP), RDP)


@pytest.mark.parametrize("target", [0.01, 0.3, 2.0, 40.0])
@pytest.mark.parametrize("name", ["rdp", "rdp-classic"])
def test_planned_noise_of_plain_gaussians_is_enough_for_any_budget(target, name):
    def plan(z):
        return {dp.GaussianDpEvent(z): 10}

    by = accountant(name)
    if name == "rdp-classic" and target < math.log(1 / DELTA) / 511:
        with pytest.raises(
            DpflError, match="No amount of noise"
        ):  # below what order 512 can ever say
            noise_for(plan, target, DELTA, by)
    else:
        assert_least(plan, target, noise_for(plan, target, DELTA, by), by)


def test_planned_noise_by_the_tight_accountant():
    def plan(z):
        return {poisson(0.05, z): 317}

    found = noise_for(plan, 2.0, DELTA, PLD)
    assert found == pytest.approx(1.989, abs=1e-3)
    assert_least(plan, 2.0, found, PLD)


def test_planned_noise_is_the_least_that_either_bound_of_the_tight_accountant_accepts():
    """Over very many steps with much noise RDP is below the PLD, whose grid tells; over few it is
    above.
    """

    def plan(steps):
        return lambda z: {poisson(0.001, z): steps}

    assert noise_for(plan(300_000), 0.3, DELTA, PLD) == noise_for(plan(300_000), 0.3, DELTA, RDP)
    assert noise_for(plan(300), 0.3, DELTA, PLD) < noise_for(plan(300), 0.3, DELTA, RDP)


def test_planned_noise_covers_every_event_of_a_plan():
    def plan(z):
        return {poisson(0.02, z): 200, dp.GaussianDpEvent(20.0): 3}

    found = noise_for(plan, 1.5, DELTA, RDP)
    assert_least(plan, 1.5, found, RDP)
    assert found > noise_for(lambda z: {poisson(0.02, z): 200}, 1.5, DELTA, RDP)


def test_planned_noise_of_fixed_size_draws_is_enough_by_the_only_proof():
    def plan(z):
        return {FixedSize(10).event(z, 200): 50}

    assert_least(plan, 3.0, noise_for(plan, 3.0, DELTA, RDP), RDP)


@pytest.mark.parametrize("rounds", [200, 500])
def test_noise_for_the_cohorts_of_the_clipping_paper(rounds):
    found = noise_for(lambda z: {poisson(COHORT, z): rounds}, 1.5, DELTA, RDP)
    assert found == pytest.approx(NOTED[rounds], rel=2e-4)


@pytest.mark.parametrize("rounds", [50, 100])
def test_finer_orders_need_no_more_noise_than_the_notes(rounds):
    found = noise_for(lambda z: {poisson(COHORT, z): rounds}, 1.5, DELTA, RDP)
    assert NOTED[rounds] * 0.95 < found <= NOTED[rounds]


@pytest.mark.parametrize("rounds", NOTED)
def test_the_notes_are_right_about_their_own_orders(rounds):
    renyi = dp.rdp.RdpAccountant([*range(2, 64), 128, 256, 512])
    renyi.compose(poisson(COHORT, NOTED[rounds]), rounds)
    assert renyi.get_epsilon(DELTA) == pytest.approx(1.5, abs=2e-4)


def test_a_plan_that_no_noise_can_mend_is_refused():
    with pytest.raises(DpflError, match="No amount of noise"):
        noise_for(
            lambda z: {dp.GaussianDpEvent(z): 10, dp.GaussianDpEvent(0.5): 1}, 1.0, DELTA, RDP
        )


def test_a_plan_without_noise_is_refused():
    with pytest.raises(DpflError, match="No amount of noise"):
        noise_for(lambda z: {dp.NonPrivateDpEvent(): 1}, 1.0, DELTA, RDP)


@st.composite
def accounts(draw):
    rate, multiplier = st.floats(0.005, 0.3), st.floats(0.7, 4.0)
    event = poisson(draw(rate), draw(multiplier))
    spent = {}
    if draw(st.booleans()):
        spent[event] = draw(st.integers(1, 100))
    if draw(st.booleans()):
        spent[poisson(draw(rate), draw(multiplier))] = draw(st.integers(1, 100))
    return spent, event


def assert_most(spent, event, count, target, by):
    if count == 0:
        assert by.epsilon(add(spent, event, 1), DELTA) > target
    else:
        assert by.epsilon(add(spent, event, count), DELTA) <= target
        assert by.epsilon(add(spent, event, count + 1), DELTA) > target


@given(accounts(), st.floats(0.3, 8.0))
@settings(max_examples=20, deadline=None)
def test_as_many_releases_are_affordable_as_fit_and_not_one_more(account, target):
    spent, event = account
    assert_most(spent, event, affordable(spent, event, target, DELTA, RDP), target, RDP)


@given(accounts(), st.floats(0.3, 8.0), st.integers(1, 3000))
@settings(max_examples=20, deadline=None)
def test_a_horizon_is_answered_if_it_fits_and_else_the_most_that_does(account, target, horizon):
    spent, event = account
    most = affordable(spent, event, target, DELTA, RDP)
    assert affordable(spent, event, target, DELTA, RDP, horizon) == min(horizon, most)


def test_the_tight_accountant_counts_what_was_spent_before_and_other_events():
    event, other = poisson(0.015, 1.1), poisson(0.05, 2.0)
    assert affordable({event: 700}, event, 2.0, DELTA, PLD) == 16
    assert affordable({event: 716}, event, 2.0, DELTA, PLD) == 0
    assert affordable({event: 5000}, event, 2.0, DELTA, PLD) == 0
    spent = {event: 100, other: 50}
    count = affordable(spent, event, 2.0, DELTA, PLD)
    assert 0 < count < 616
    assert_most(spent, event, count, 2.0, PLD)
    assert affordable(spent, event, 2.0, DELTA, PLD, horizon=count) == count
    assert affordable(spent, event, 2.0, DELTA, PLD, horizon=count + 1) == count


@pytest.mark.parametrize("by", [RDP, PLD, accountant("rdp-classic")], ids=lambda by: by.name)
def test_a_release_without_noise_is_never_affordable(by):
    assert affordable({}, dp.NonPrivateDpEvent(), 10.0, DELTA, by) == 0
    assert affordable({}, dp.NonPrivateDpEvent(), 10.0, DELTA, by, horizon=5) == 0
    assert affordable({dp.NonPrivateDpEvent(): 1}, poisson(0.01, 5.0), 10.0, DELTA, by) == 0


def test_an_event_that_costs_next_to_nothing_is_affordable_more_often_than_anyone_counts():
    assert affordable({}, dp.GaussianDpEvent(1e7), 5.0, DELTA, RDP) >= MAX_RELEASES


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf])
def test_an_impossible_epsilon_is_refused_in_a_sentence(epsilon):
    with pytest.raises(DpflError, match="epsilon must be a positive number"):
        check_target(epsilon, DELTA)
    with pytest.raises(DpflError, match="epsilon must be a positive number"):
        noise_for(lambda z: {poisson(0.1, z): 10}, epsilon, DELTA, RDP)


@pytest.mark.parametrize("delta", [0, 1, 2, -1e-5, math.nan])
def test_an_impossible_delta_is_refused_in_a_sentence(delta):
    with pytest.raises(DpflError, match="delta must lie between 0 and 1"):
        check_target(1.0, delta)
    with pytest.raises(DpflError, match="delta must lie between 0 and 1"):
        noise_for(lambda z: {poisson(0.1, z): 10}, 1.0, delta, RDP)


@pytest.mark.parametrize("power", [0.5, 1.2])
@pytest.mark.parametrize("right", [0.01, 0.7, 3.6, 3.8, 500.0])
def test_noise_near_a_theory_is_within_what_was_asked_whatever_the_theory(right, power):
    def plan(z):
        return {poisson(0.1, z): 317}

    def theory(epsilon):
        return right * (2.0 / epsilon) ** power

    z, error = noise_near(theory, 0.0, plan, 2.0, DELTA, RDP, 1e-3)
    found = RDP.epsilon(plan(z), DELTA)
    assert 2.0 * 0.999 <= found <= 2.0
    if error:  # then the theory was asked for what makes up for it
        assert theory(found * math.exp(-error)) == pytest.approx(z)


def test_noise_near_a_theory_whose_error_is_known_takes_one_evaluation():
    asked = []

    def plan(z):
        asked.append(z)
        return {poisson(0.1, z): 317}

    def theory(epsilon):
        return 3.6 * (2.0 / epsilon) ** 0.8

    _, error = noise_near(theory, 0.0, plan, 2.0, DELTA, RDP, 1e-3)
    assert len(asked) > 1
    asked.clear()
    noise_near(theory, error, plan, 2.0, DELTA, RDP, 2e-3)
    assert len(asked) == 1
