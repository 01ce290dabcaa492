"""The borders of what members and server of a secure sum accept, each just inside and just
outside.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpfl.errors import DpflError
from dpfl.secagg import MaskedSum, MemberRefusal, SumId, SumMember, session
from dpfl.secagg.masks import bits_of
from dpfl.secagg.shares import _at_zero, combine
from tests.secagg.summing import at, begun, group, identity, met, numbers

OF = group(5, 4, 1, run="borders")
PRIME = 2**128 + 51


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros(3, np.int32),
        np.zeros(3, np.float32),
        np.zeros(3, ">u4"),
        np.zeros((2, 2), np.uint32),
        np.zeros((1, 3), "<u8"),
        np.zeros(3, np.uint16),
        np.zeros(3, bool),
    ],
    ids=["signed", "real", "of another order", "of two axes", "of a row", "short", "bits"],
)
def test_numbers_that_cannot_be_masked_are_refused_by_the_member(wrong):
    with pytest.raises(DpflError, match="unsigned whole numbers"):
        bits_of(wrong)
    members = met(OF)
    with pytest.raises(DpflError, match="unsigned whole numbers"):
        members[OF.names[0]].mask(at(members), wrong)
    members[OF.names[0]].mask(
        at(members), np.zeros(3, np.uint32)
    )  # what was refused has used nothing up


def test_a_session_is_of_each_member_once():
    cards = [SumMember(OF, name, identity(name)).advertisement for name in OF.names]
    again = SumMember(OF, OF.names[0], identity(OF.names[0])).advertisement
    for shown in ([*cards, again], cards[1:], [*cards, cards[1]], []):
        with pytest.raises(MemberRefusal, match="one to one"):
            session(OF, shown)


def test_shares_of_a_number_that_is_no_seed_give_none():
    """Members who lie can make any number of their shares: one beyond 128 bits is no seed, and ends
    nothing.
    """
    members = (1, 2, 3)
    weights = _at_zero(members)
    for wanted in (2**128 - 1, 2**128, 2**128 + 1, PRIME - 1, 0):
        last = (wanted - weights[0] * 5 - weights[1] * 7) * pow(weights[2], -1, PRIME) % PRIME
        found = combine({1: (5).to_bytes(17), 2: (7).to_bytes(17), 3: last.to_bytes(17)})
        assert found == (wanted.to_bytes(16) if wanted < 2**128 else None)


def test_the_server_takes_whole_answers_of_members_to_this_sum_and_no_others():
    members = met(OF)
    here, values, (first, second, third, *_) = at(members, 1), numbers(OF, 6), OF.names
    sum = MaskedSum(OF, here, 6)
    sent = {name: members[name].mask(here, values[name]) for name in OF.names}
    wrong = {
        "another sum": replace(sent[first], sum_id=replace(here, round=2)),
        "another's name": replace(sent[first], sender="somebody"),
        "too few": replace(sent[first], numbers=sent[first].numbers[:5]),
        "too many": replace(sent[first], numbers=np.zeros(7, np.uint32)),
        "of other bits": replace(sent[first], numbers=np.zeros(6, np.uint64)),
        "an envelope less": replace(sent[first], envelopes={second: sent[first].envelopes[second]}),
        "an envelope more": replace(sent[first], envelopes={**sent[first].envelopes, first: b""}),
        "a digest less": replace(sent[first], digests={first: sent[first].digests[first]}),
    }
    for masked in wrong.values():
        with pytest.raises(MemberRefusal):
            sum.take(masked)
    for name in OF.names[:4]:
        sum.take(sent[name])
    sum.take(
        replace(sent[third], numbers=np.zeros(6, np.uint32))
    )  # a second answer does not replace the first
    assert np.array_equal(sum._inputs[third].numbers, sent[third].numbers)
    assert sum.survivor_lists().keys() == set(OF.names[:4])
    with pytest.raises(MemberRefusal, match="arrived after the survivors were announced"):
        sum.take(sent[OF.names[4]])


def test_the_server_counts_what_members_of_this_sum_open_each_once():
    members = met(OF)
    sum = begun(OF, members, numbers(OF), at(members))
    answers = [members[name].agree(shown) for name, shown in sum.survivor_lists().items()]
    for wrong in (
        replace(answers[0], sum_id=SumId("another", 0)),
        replace(answers[0], sender="somebody"),
    ):
        with pytest.raises(MemberRefusal, match="another sum, or"):
            sum.open(wrong)
    assert not sum._shares


def test_a_missing_seed_is_found_from_shares_and_checked_where_its_owner_lies():
    """One survivor opens nothing, another tells wrong seeds: both of their masks are put together
    by the others.
    """
    of = group(7, 5, run="seeds")
    members, values, missing = met(of), numbers(of), of.names[6]
    sum = begun(of, members, values, at(members), silent=[missing])
    for name, shown in sum.survivor_lists().items():
        sum.vote(members[name].agree(shown))
    votes = sum.votes()
    for name in of.names[:5]:
        opened = members[name].open(votes)
        sum.open(replace(opened, seeds={missing: bytes(16)}) if name == of.names[0] else opened)
    expected = np.sum([values[name] for name in of.names[:6]], axis=0, dtype=np.uint32)
    assert np.array_equal(sum.total(), expected)
