"""Who takes part: the rate of the coins, the size of the draw, and divisors that know nothing of
it.
"""

import itertools
import math

import dp_accounting as dp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpfl.errors import DpflError
from dpfl.privacy import All, FixedCohort, FixedSize, Poisson, PoissonSize
from dpfl.privacy.accounting.events import ADD_REMOVE, REPLACE
from dpfl.privacy.mechanisms.sampling import Cyclic

ONE_IN_A_MILLION = 1e-6


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("rate", [0.001, 0.015, 0.3, 0.9])
def test_poisson_draws_have_their_rate_and_their_variance(rate):
    population, draws = 1000, 400
    generator = rng(1)
    sizes = np.array([len(Poisson(rate).draw(population, generator)) for _ in range(draws)])
    low, high = stats.binom.interval(1 - ONE_IN_A_MILLION, population * draws, rate)
    assert low <= sizes.sum() <= high
    spread = stats.chi2.interval(1 - ONE_IN_A_MILLION, draws - 1)
    assert (
        spread[0] <= (draws - 1) * sizes.var(ddof=1) / (population * rate * (1 - rate)) <= spread[1]
    )


def test_every_unit_has_the_same_chance_whatever_the_others_do():
    generator, draws = rng(2), 20_000
    taken = np.zeros((draws, 5))
    for row in taken:
        row[Poisson(0.3).draw(5, generator)] = 1
    low, high = stats.binom.interval(1 - ONE_IN_A_MILLION, draws, 0.3)
    assert ((low <= taken.sum(0)) & (taken.sum(0) <= high)).all()
    together = np.corrcoef(taken.T)[np.triu_indices(5, 1)]
    assert np.abs(together).max() < 5 / math.sqrt(draws)


@given(st.floats(0.001, 1.0), st.integers(0, 500), st.integers(0, 100))
def test_a_draw_is_ascending_and_without_repeats(rate, population, seed):
    drawn = Poisson(rate).draw(population, rng(seed))
    assert (np.diff(drawn) > 0).all()
    assert all(0 <= index < population for index in drawn)


def test_a_rate_of_one_takes_everyone_and_is_not_called_sampling():
    assert len(Poisson(1.0).draw(100, rng())) == 100
    assert Poisson(1.0).event(2.0, 100) == dp.GaussianDpEvent(2.0)


@pytest.mark.parametrize("sampling", [Poisson(0.1), PoissonSize(10), FixedSize(10), All()])
def test_the_divisor_is_fixed_before_the_draw(sampling):
    before = sampling.expected_size(100)
    sizes = [len(sampling.draw(100, rng(seed))) for seed in range(200)]
    assert sampling.expected_size(100) == before
    assert np.mean(sizes) == pytest.approx(before, rel=0.1)
    if isinstance(sampling, Poisson | PoissonSize):
        assert len(set(sizes)) > 5


def test_the_divisor_of_poisson_sampling_may_lie_below_one():
    assert Poisson(0.001).expected_size(100) == pytest.approx(0.1)


@pytest.mark.parametrize("rate", [0, -0.1, 1.0001, math.nan, math.inf])
def test_an_impossible_rate_is_refused(rate):
    with pytest.raises(DpflError, match="sampling rate"):
        Poisson(rate)


def test_the_poisson_event_tells_rate_and_multiplier():
    assert Poisson(0.015).event(1.1, 600) == dp.PoissonSampledDpEvent(
        0.015, dp.GaussianDpEvent(1.1)
    )


@pytest.mark.parametrize("sampling", [Poisson(0.1), PoissonSize(10), FixedSize(10), All()])
@pytest.mark.parametrize("multiplier", [0.0, -1.0])
def test_sampling_without_noise_protects_nothing(sampling, multiplier):
    assert sampling.event(multiplier, 100) == dp.NonPrivateDpEvent()


def test_a_poisson_size_is_the_rate_that_expects_it():
    assert PoissonSize(80).of(1920) == Poisson(80 / 1920)
    assert PoissonSize(80).expected_size(1920) == 80
    assert PoissonSize(80).event(1.5, 1920) == Poisson(80 / 1920).event(1.5, 1920)
    assert (PoissonSize(80).draw(1920, rng(3)) == Poisson(80 / 1920).draw(1920, rng(3))).all()


@pytest.mark.parametrize(
    "use",
    [
        PoissonSize(11).of,
        lambda n: PoissonSize(11).draw(n, rng()),
        lambda n: FixedSize(11).draw(n, rng()),
    ],
)
def test_more_units_than_there_are_cannot_be_drawn(use):
    with pytest.raises(DpflError, match="lower the size"):
        use(10)


@pytest.mark.parametrize("kind", [PoissonSize, FixedSize])
@pytest.mark.parametrize("size", [0, -3])
def test_a_draw_needs_at_least_one_unit(kind, size):
    with pytest.raises(DpflError, match="at least 1"):
        kind(size)


@given(st.integers(1, 200), st.integers(0, 100), st.data())
def test_a_fixed_size_draw_has_its_size_and_no_repeats(population, seed, data):
    size = data.draw(st.integers(1, population))
    drawn = FixedSize(size).draw(population, rng(seed))
    assert len(set(drawn.tolist())) == size
    assert (np.diff(drawn) > 0).all()
    assert 0 <= drawn[0] <= drawn[-1] < population


def test_fixed_size_draws_take_every_unit_equally_often():
    generator, draws = rng(4), 5000
    taken = np.zeros(10)
    for _ in range(draws):
        taken[FixedSize(3).draw(10, generator)] += 1
    low, high = stats.binom.interval(1 - ONE_IN_A_MILLION, draws, 0.3)
    assert ((low <= taken) & (taken <= high)).all()


def test_the_fixed_size_event_halves_the_multiplier_because_replacing_moves_two_norms():
    assert FixedSize(10).event(3.0, 200) == dp.SampledWithoutReplacementDpEvent(
        200, 10, dp.GaussianDpEvent(1.5)
    )


def test_everyone_takes_part_without_sampling():
    assert All().draw(5, rng()).tolist() == [0, 1, 2, 3, 4]
    assert All().expected_size(5) == 5
    assert All().event(1.5, 5) == dp.GaussianDpEvent(1.5)


@pytest.mark.parametrize(("population", "size"), [(6, 2), (5, 4), (9, 1)])
def test_a_cohort_of_fixed_size_is_counted_as_its_members_see_it(
    population: int, size: int
) -> None:
    """Fault: epsilon for b of n, told to a client that knows whether it is among the b. Counted
    over all draws.
    """
    draws = [set(drawn) for drawn in itertools.combinations(range(population), size)]
    insider, target = 0, 1
    rates = []
    for present in (True, False):
        seen = [drawn for drawn in draws if (insider in drawn) == present]
        rates.append(sum(target in drawn for drawn in seen) / len(seen))
    event = FixedCohort(size).event(2.0, population)
    counted = event.sample_size / event.source_dataset_size
    assert counted == pytest.approx(max(rates))
    assert counted > size / population, "and not as whoever knows nothing sees it"


def test_a_cohort_of_everyone_gains_nothing_by_a_draw() -> None:
    event = FixedCohort(4).event(2.0, 4)
    assert event.sample_size == event.source_dataset_size == 4


@pytest.mark.parametrize(
    ("make", "neighbours", "hidden", "known", "counts", "least", "largest_share"),
    [
        (lambda: Poisson(0.5), ADD_REMOVE, True, True, False, 1, math.inf),
        (lambda: PoissonSize(5), ADD_REMOVE, True, True, True, 5, math.inf),
        (lambda: FixedSize(5), REPLACE, True, False, False, 5, 0.2),
        (lambda: FixedCohort(5), REPLACE, True, True, False, 5, 0.2),
        (lambda: All(), ADD_REMOVE, False, True, False, 1, math.inf),
        (lambda: Cyclic(5), ADD_REMOVE, False, True, True, 5, math.inf),
    ],
    ids=["Poisson", "PoissonSize", "FixedSize", "FixedCohort", "All", "Cyclic"],
)
def test_what_is_stated_of_each_way_to_draw(
    make, neighbours, hidden, known, counts, least, largest_share
):
    """Rules, events and statements are chosen by these words."""
    sampling = make()
    stated = (
        sampling.neighbours,
        sampling.needs_secrecy,
        sampling.allows_self_knowledge,
        sampling.depends_on_population,
        sampling.min_population,
        sampling.max_share,
    )
    assert stated == (neighbours, hidden, known, counts, least, largest_share)
    assert sampling.expected_size(5) > 0


@pytest.mark.parametrize(
    ("sampling", "of_samples", "of_clients"),
    [
        (Poisson(0.5), True, True),
        (PoissonSize(5), False, True),
        (FixedSize(5), True, False),
        (FixedCohort(5), False, False),
        (All(), True, True),
        (Cyclic(5), False, False),
    ],
    ids=["Poisson", "PoissonSize", "FixedSize", "FixedCohort", "All", "Cyclic"],
)
def test_a_node_accepts_some_draws_of_samples_and_others_of_clients(
    sampling, of_samples, of_clients
):
    """A client of a secure sum draws itself, so its draw must not depend on the others'."""
    assert (sampling.draws_samples, sampling.independent) == (of_samples, of_clients)
