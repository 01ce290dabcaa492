"""Keys give streams that repeat and never meet; the operating system gives streams that do not
repeat.
"""

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from dpfl.privacy import Keyed, SystemEntropy

ROOT = Path(__file__).parents[3]
small = st.integers(0, 10**6)
purposes = st.one_of(
    st.sampled_from(["batch", "sample noise", "cohort", "1", "1/2", "a/1/2"]), st.text(max_size=8)
)
keys = st.tuples(small, small, purposes, small, small)


def stream(key, size=4):
    seed, epoch, purpose, round_, client = key
    return tuple(
        Keyed(seed, epoch)
        .generator(purpose, round_, client)
        .bit_generator.random_raw(size)
        .tolist()
    )


@given(keys)
def test_the_same_key_gives_the_same_stream(key):
    assert stream(key) == stream(key)


@given(keys, keys)
def test_two_keys_share_a_stream_only_if_they_are_the_same(one, other):
    assert (stream(one) == stream(other)) == (one == other)


@given(keys, st.sampled_from([0, 1, 3, 4]), st.integers(1, 1000))
def test_a_change_of_any_one_number_gives_another_stream(key, field, change):
    other = list(key)
    other[field] += change
    assert not set(stream(key)) & set(stream(other))


@given(keys, purposes)
def test_another_purpose_gives_another_stream(key, purpose):
    if purpose != key[2]:
        assert not set(stream(key)) & set(stream((*key[:2], purpose, *key[3:])))


@given(keys, st.sampled_from([(3, 4), (0, 1)]))
def test_numbers_that_change_places_give_another_stream(key, places):
    other, (one, two) = list(key), places
    other[one], other[two] = other[two], other[one]
    assert (stream(key) == stream(other)) == (key[one] == key[two])


def test_a_hundred_thousand_keys_have_as_many_beginnings():
    first = set()
    for epoch in range(2):
        keyed = Keyed(7, epoch)
        for purpose in ("batch", "sample noise"):
            for round_ in range(158):
                for client in range(160):
                    first.add(
                        int(keyed.generator(purpose, round_, client).bit_generator.random_raw())
                    )
    assert len(first) == 2 * 2 * 158 * 160


def test_streams_of_neighbouring_rounds_are_uncorrelated():
    draws = np.stack(
        [Keyed(0).generator("sample noise", step).standard_normal(20_000) for step in range(12)]
    )
    apart = np.corrcoef(draws)[np.triu_indices(12, 1)]
    assert np.abs(apart).max() < 5 / np.sqrt(20_000)


def test_a_key_gives_the_same_stream_in_another_process():
    """A resumed run needs the noise of the first attempt."""
    script = (
        "from tests.privacy.mechanisms.test_randomness import stream; print(stream((1, 2, 'sample "
        "noise', 3, 4)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert found.stdout.strip() == str(stream((1, 2, "sample noise", 3, 4)))


def seed_everything():
    np.random.seed(0)
    random.seed(0)
    torch.manual_seed(0)


def test_the_operating_systems_streams_never_repeat_even_for_the_same_key_and_seeds():
    drawn = set()
    for _ in range(200):
        seed_everything()
        drawn.add(int(SystemEntropy().generator("sample noise", 1, 2).bit_generator.random_raw()))
    assert len(drawn) == 200


def test_keys_do_not_listen_to_global_seeds_nor_disturb_them():
    seed_everything()
    first, torch_state = stream((0, 0, "batch", 0, 0)), torch.random.get_rng_state()
    numpy_state = np.random.get_state()[1].copy()
    np.random.seed(5)
    torch.manual_seed(5)
    assert stream((0, 0, "batch", 0, 0)) == first
    seed_everything()
    SystemEntropy().generator("batch").standard_normal(10)
    Keyed(1).generator("batch").standard_normal(10)
    assert torch.equal(torch.random.get_rng_state(), torch_state)
    assert (np.random.get_state()[1] == numpy_state).all()


def test_each_kind_says_whether_it_can_be_repeated():
    assert Keyed(0).repeatable
    assert not SystemEntropy().repeatable


def entropy(generators) -> np.ndarray:
    """The bits of the keys that generators were made of, a row each: 256 at most."""
    keys = [int(generator.bit_generator.seed_seq.entropy) for generator in generators]
    return np.array([[key >> place & 1 for place in range(256)] for key in keys])


def test_the_operating_system_gives_256_bits_for_every_generator():
    """Fault: with 32 bits no draw repeats in a test of hundreds, and whoever sees noise tries all
    keys in minutes.
    """
    bits = entropy(SystemEntropy().generator("sample noise", 1, 2) for _ in range(200))
    often = bits.mean(axis=0)
    assert often.min() > 0.2, "every bit is as often 0 as 1, to some 8 deviations"
    assert often.max() < 0.8


def test_a_key_has_128_bits_that_all_change():
    often = entropy(Keyed(seed).generator("sample noise", 1, 2) for seed in range(200)).mean(axis=0)
    assert often[:128].min() > 0.2
    assert often[:128].max() < 0.8
