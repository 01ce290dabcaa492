"""Exact sums of those whose numbers arrived, whoever is lost on the way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from dpfl.errors import DpflError
from dpfl.secagg import RepeatSum, SumGroup, SumMember, UnmaskingShares
from dpfl.secagg.masks import mask
from dpfl.secagg.shares import added_bytes
from tests.secagg.summing import at, begun, group, identity, met, numbers, plain, summed

GROUPS = {
    (3, 2, 0): group(3, 2),
    (5, 4, 1): group(5, 4, 1),
    (10, 7, 2): group(10, 7, 2),
    (10, 6, 0): group(10, 6),
}


@pytest.fixture(scope="module", name="runs")
def _runs() -> dict[tuple[int, int, int], tuple[SumGroup, dict[str, SumMember]]]:
    return {key: (of, met(of)) for key, of in GROUPS.items()}


ROUNDS = iter(range(1, 10**6))


@given(data=st.data(), key=st.sampled_from(list(GROUPS)), bits=st.sampled_from([32, 64]))
@settings(deadline=None, max_examples=40)
def test_whoever_drops_when_the_sum_of_the_others_is_exact(runs, data, key, bits):
    of, members = runs[key]
    lost = data.draw(
        st.lists(st.sampled_from(of.names), unique=True, max_size=len(of.names) - of.survivors)
    )
    when = {name: data.draw(st.sampled_from(["silent", "gone", "speechless"])) for name in lost}
    sets = {
        word: [name for name in lost if when[name] == word]
        for word in ("silent", "gone", "speechless")
    }
    here, values = at(members, next(ROUNDS)), numbers(of, 7, bits, data.draw(st.integers(0, 2**32)))
    survivors = [name for name in of.names if name not in sets["silent"]]
    assert np.array_equal(summed(of, members, values, here, **sets), plain(values, survivors))


def test_fewer_than_the_least_survivors_open_nothing_and_the_next_attempt_is_exact(runs):
    of, members = runs[10, 7, 2]
    values, round = numbers(of), next(ROUNDS)
    with pytest.raises(RepeatSum, match="Only 6 clients sent their numbers, of 7"):
        summed(of, members, values, at(members, round), silent=of.names[:4])
    assert np.array_equal(
        summed(of, members, values, at(members, round, 1)), plain(values, of.names)
    )


@pytest.mark.parametrize("lost", ["gone", "speechless"])
def test_too_few_who_answer_open_nothing(runs, lost):
    of, members = runs[10, 7, 2]
    with pytest.raises(RepeatSum, match="not opened"):
        summed(
            of,
            members,
            numbers(of),
            at(members, next(ROUNDS)),
            silent=of.names[:1],
            **{lost: of.names[3:]},
        )


def test_numbers_are_added_modulo_two_to_the_bits(runs):
    of, members = runs[3, 2, 0]
    values = {name: np.full(4, 2**32 - 1, np.uint32) for name in of.names}
    assert summed(of, members, values, at(members, next(ROUNDS))).tolist() == [2**32 - 3] * 4


def test_masked_numbers_are_uniform_and_new_in_every_round_and_attempt(runs):
    of, members = runs[3, 2, 0]
    values, round = {name: np.zeros(40_000, np.uint32) for name in of.names}, next(ROUNDS)
    sent = [
        members[of.names[0]].mask(at(members, round, attempt), values[of.names[0]]).numbers
        for attempt in range(3)
    ]
    for difference in (sent[0], sent[1], sent[1] - sent[0], sent[2] - sent[1]):
        assert chisquare(np.bincount(difference.view(np.uint8), minlength=256)).pvalue > 1e-9


def test_the_mask_of_one_honest_pair_hides_the_rest(runs):
    """All but two collude, more than the rules allow: what the two sent is uniform alone, and right
    in the sum.
    """
    of, members = runs[5, 4, 1]
    values, here = numbers(of, 40_000, seed=3), at(members, next(ROUNDS))
    sum = begun(of, members, values, here)
    opened = [members[name].agree(shown) for name, shown in sum.survivor_lists().items()]
    for answer in opened:
        assert isinstance(answer, UnmaskingShares)
        sum.open(answer)
    one, other, *colluders = of.names
    known = {name: sum._inputs[name].numbers - mask_of(sum, name) for name in (one, other)}
    for name in (one, other):
        for colluder in colluders:
            add_known(known[name], members[colluder], here, name, colluder)
        rest = known[name] - values[name]
        assert chisquare(np.bincount(rest.view(np.uint8), minlength=256)).pvalue > 1e-9
    assert np.array_equal(known[one] + known[other], values[one] + values[other])


def test_every_pair_has_a_mask_as_the_paper_writes_it(runs):
    """y_u = x_u + PRG(b_u) + sum_(v > u) PRG(s_uv) - sum_(v < u) PRG(s_uv), term by term: of a pair
    that both leave out the sum shows nothing."""
    of, members = runs[5, 4, 1]
    here, values = at(members, next(ROUNDS)), numbers(of)
    for name, member in members.items():
        rest = member.mask(here, values[name]).numbers - values[name]
        assert len(set(member._sum.seeds.values())) == len(of.names)
        for other, seed in member._sum.seeds.items():
            term = mask(seed, here, len(rest), 32)
            rest = rest + term if other < name else rest - term
        assert not rest.any()


def mask_of(sum, name):
    return mask(sum._seed(name, name), sum._at, sum._size, 32)


def add_known(numbers, colluder, here, name, other):
    from dpfl.secagg.masks import add_pair, pair_seed

    add_pair(
        numbers, pair_seed(colluder._pairs[name], here, name, other), here, name, other, times=-1
    )


def test_a_member_that_lies_about_shares_is_outvoted_by_their_digest(runs):
    of, members = runs[10, 6, 0]
    values = numbers(of)
    sum = begun(of, members, values, at(members, next(ROUNDS)))
    for name, shown in sum.survivor_lists().items():
        answer = members[name].agree(shown)
        assert isinstance(answer, UnmaskingShares)
        lying = name in of.names[:2]
        sum.open(
            replace(answer, shares={key: bytes(17) for key in answer.shares}) if lying else answer
        )
    assert np.array_equal(sum.total(), plain(values, of.names))


def test_a_member_whose_envelopes_are_garbage_costs_the_sum_and_is_named(runs):
    of, members = runs[5, 4, 1]
    here, values, liar = at(members, next(ROUNDS)), numbers(of), of.names[2]
    sum = begun(of, members, values, here, silent=[liar])
    sent = members[liar].mask(here, values[liar])
    sum.take(replace(sent, envelopes=dict.fromkeys(sent.envelopes, b"garbage")))
    for name, shown in sum.survivor_lists().items():
        answer = members[name].agree(shown)
        assert isinstance(answer, UnmaskingShares)
        assert name == liar or not any(owner == liar for owner, _ in answer.shares)
        sum.open(answer)
    with pytest.raises(RepeatSum, match=f"A mask of {liar} cannot be put together"):
        sum.total()


def test_what_cannot_be_kept_is_refused_in_a_sentence():
    for sizes, sentence in {
        (2, 2, 0): "3 to 100 clients, not 2",
        (101, 80, 0): "3 to 100 clients, not 101",
        (10, 11, 0): "set it to 10 at most",
        (10, 5, 0): "at least 6",
        (10, 6, 2): "at least 7",
        (10, 10, 10): "at least 11",
        (10, 8, -1): "at least 0",
    }.items():
        with pytest.raises(DpflError, match=sentence):
            group(*sizes)
    key = identity("a").public_key().public_bytes_raw().hex()
    with pytest.raises(DpflError, match="same key"):
        SumGroup("run", {"a": key, "b": key, "c": "00"}, 2)


def test_what_the_protocol_sends_is_counted():
    """Bytes a client and a round, as the messages have them."""
    of = group(10, 8)
    members = met(of)
    begun_sum = begun(of, members, numbers(of, 26), at(members))
    sent, shown = begun_sum._inputs[of.names[0]], begun_sum.survivor_lists()[of.names[0]]
    opened = members[of.names[0]].agree(shown)
    parts = (
        *sent.envelopes.values(),
        *sent.digests.values(),
        *shown.envelopes.values(),
        *opened.shares.values(),
    )
    assert added_bytes(10) == len(b"".join(parts))
