"""The written form of events: one line each, read back as written, and nothing else read."""

import json

import dp_accounting as dp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfl.errors import DpflError
from dpfl.privacy.accounting.events import (
    ADD_REMOVE,
    REPLACE,
    decode,
    describe,
    encode,
    gaussian,
    neighbours_of,
)

gaussians = st.builds(dp.GaussianDpEvent, st.floats(1e-6, 1e6))
fixed_sizes = st.integers(1, 10**9).flatmap(
    lambda population: st.builds(
        dp.SampledWithoutReplacementDpEvent,
        st.just(population),
        st.integers(1, population),
        gaussians,
    )
)
events = st.one_of(
    st.just(dp.NonPrivateDpEvent()),
    gaussians,
    st.builds(dp.PoissonSampledDpEvent, st.floats(1e-9, 1.0), gaussians),
    fixed_sizes,
)


@given(events)
def test_an_event_is_read_back_as_it_was_written(event):
    assert decode(encode(event)) == event
    assert "\n" not in encode(event)


@given(events, events)
def test_two_events_share_a_line_only_if_they_are_the_same(one, other):
    assert (encode(one) == encode(other)) == (one == other)


def test_numbers_of_any_kind_give_the_same_line():
    lines = {
        encode(dp.PoissonSampledDpEvent(0.5, dp.GaussianDpEvent(kind(2))))
        for kind in (int, float, np.float32, np.int64)
    }
    assert lines == {
        '{"of":{"mechanism":"gaussian","noise_multiplier":2.0},"rate":0.5,"sampling":"poisson"}'
    }


@given(events, st.data())
def test_a_line_cut_short_is_refused(event, data):
    line = encode(event)
    cut = data.draw(st.integers(0, len(line) - 1))
    with pytest.raises(DpflError, match="cannot be read"):
        decode(line[:cut])


@given(events, st.data())
def test_a_line_without_one_of_its_fields_is_refused(event, data):
    fields = json.loads(encode(event))
    del fields[data.draw(st.sampled_from(sorted(fields)))]
    with pytest.raises(DpflError, match="cannot be read"):
        decode(json.dumps(fields))


@pytest.mark.parametrize(
    "line",
    [
        "",
        "gaussian",
        "{}",
        '{"mechanism":"laplace","noise_multiplier":1.0}',
        '{"mechanism":"gaussian","noise_multiplier":"much"}',
        '{"mechanism":"gaussian","noise_multiplier":null}',
        '{"sampling":"shuffled","of":{"mechanism":"none"}}',
        '{"sampling":"poisson","rate":null,"of":{"mechanism":"gaussian","noise_multiplier":1.0}}',
        '{"sampling":"fixed-size","population":10,"size":"x","of":{"mechanism":"gaussian","noise_multiplier":1.0}}',
        '{"sampling":"poisson","rate":0.1,"of":{"mechanism":"magic"}}',
    ],
)
def test_a_line_that_means_nothing_is_refused(line):
    with pytest.raises(DpflError, match="restore it from a copy"):
        decode(line)


def test_an_event_without_a_written_form_is_refused():
    with pytest.raises(DpflError, match="no written form"):
        encode(dp.LaplaceDpEvent(1.0))
    with pytest.raises(DpflError, match="no written form"):
        encode(dp.PoissonSampledDpEvent(0.1, dp.LaplaceDpEvent(1.0)))


@pytest.mark.parametrize("multiplier", [0.0, -1.0, float("nan")])
def test_no_noise_is_an_event_without_a_guarantee(multiplier):
    assert gaussian(multiplier) == dp.NonPrivateDpEvent()


def test_noise_is_a_gaussian_event():
    assert gaussian(1.5) == dp.GaussianDpEvent(1.5)


def test_neighbours_follow_from_the_sampling():
    fixed = dp.SampledWithoutReplacementDpEvent(10, 2, dp.GaussianDpEvent(1.0))
    other = dp.SampledWithoutReplacementDpEvent(20, 2, dp.GaussianDpEvent(1.0))
    sampled = dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(1.0))
    assert neighbours_of([fixed, other]) == REPLACE
    assert neighbours_of([sampled, dp.GaussianDpEvent(1.0)]) == neighbours_of([]) == ADD_REMOVE
    with pytest.raises(DpflError, match="different neighbours"):
        neighbours_of([fixed, sampled])


def test_an_event_is_described_with_its_numbers():
    assert describe(dp.NonPrivateDpEvent()) == "a release without noise"
    assert describe(dp.GaussianDpEvent(1.25)) == "Gaussian noise, multiplier 1.25"
    assert "rate 0.015" in describe(dp.PoissonSampledDpEvent(0.015, dp.GaussianDpEvent(1.1)))
    assert "1.1" in describe(dp.PoissonSampledDpEvent(0.015, dp.GaussianDpEvent(1.1)))
    assert "10 of 200" in describe(
        dp.SampledWithoutReplacementDpEvent(200, 10, dp.GaussianDpEvent(1.1))
    )
    assert "Laplace" in describe(dp.LaplaceDpEvent(1.0))


def test_everyone_may_be_drawn_and_nobody_may_not():
    everyone = dp.PoissonSampledDpEvent(1.0, dp.GaussianDpEvent(1.5))
    assert decode(encode(everyone)) == everyone
    for rate in ("0.0", "1.0000001", "-1.0"):
        with pytest.raises(DpflError):
            decode(encode(everyone).replace('"rate":1.0', f'"rate":{rate}'))
