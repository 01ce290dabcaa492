"""What a member refuses, and what it reveals."""

from __future__ import annotations

from itertools import chain

import pytest

from dpfl.secagg import (
    MemberRefusal,
    SumId,
    SumMember,
    SurvivorList,
    SurvivorVote,
    SurvivorVotes,
    UnmaskingShares,
)
from tests.secagg.summing import at, begun, met, numbers, summed
from tests.secagg.test_attacks import OF, ROUNDS, _shown


@pytest.fixture(scope="module", name="members")
def _members() -> dict[str, SumMember]:
    return met(OF)


def test_a_member_stands_for_one_list_of_survivors(members):
    here = at(members, next(ROUNDS))
    sum = begun(OF, members, numbers(OF), here)
    first, second, name = OF.names[:9], OF.names[:8], OF.names[0]
    assert isinstance(members[name].agree(_shown(sum, here, first, name)), SurvivorVote)
    for survivors in (second, first, OF.names):
        with pytest.raises(MemberRefusal, match="has one list"):
            members[name].agree(_shown(sum, here, survivors, name))


def test_a_round_is_not_replayed_and_an_attempt_not_used_again(members):
    round = next(ROUNDS)
    next(ROUNDS)
    values = numbers(OF)
    summed(OF, members, values, at(members, round, 1))
    member = members[OF.names[0]]
    for place in ((round, 1), (round, 0), (round - 1, 5)):
        with pytest.raises(MemberRefusal, match="no mask is made twice"):
            member.mask(at(members, *place), values[OF.names[0]])
    with pytest.raises(MemberRefusal, match="another run"):
        member.mask(SumId("another session", round + 1), values[OF.names[0]])
    with pytest.raises(MemberRefusal, match="already opened"):
        member.agree(SurvivorList(at(members, round, 1), OF.names, {}))


def test_survivors_who_are_few_invented_repeated_or_without_oneself_are_refused(members):
    here = at(members, next(ROUNDS))
    sum = begun(OF, members, numbers(OF), here)
    name = OF.names[0]
    for survivors, sentence in {
        OF.names[:6]: "6 survivors are fewer than 7",
        (*OF.names[:6], "invented"): "must be members",
        (*OF.names[:6], OF.names[1]): "each once",
        OF.names[1:]: "not among the survivors",
    }.items():
        with pytest.raises(MemberRefusal, match=sentence):
            members[name].agree(SurvivorList(here, survivors, {}))
    assert isinstance(
        members[name].agree(_shown(sum, here, OF.names, name)), UnmaskingShares
    )  # what was refused has changed nothing


def test_nothing_is_opened_before_survivors_were_shown_nor_twice(members):
    here = at(members, next(ROUNDS))
    sum = begun(OF, members, numbers(OF), here)
    name = OF.names[0]
    with pytest.raises(MemberRefusal, match="No survivors have been announced"):
        members[name].open(SurvivorVotes(here, {}))
    members[name].agree(_shown(sum, here, OF.names, name))
    with pytest.raises(MemberRefusal, match="already opened"):
        members[name].open(SurvivorVotes(here, {}))


def test_what_is_opened_is_never_both_halves_nor_a_pair_of_survivors(members):
    here = at(members, next(ROUNDS))
    sum = begun(OF, members, numbers(OF), here)
    survivors, missing = OF.names[:8], set(OF.names[8:])
    votes = {
        name: members[name].agree(_shown(sum, here, survivors, name)).signature
        for name in survivors
    }
    answers = [members[name].open(SurvivorVotes(here, votes)) for name in survivors]
    for owner, other in chain.from_iterable(answer.shares for answer in answers):
        assert owner in survivors
        assert other == owner or other in missing
    assert all(set(answer.seeds) == missing for answer in answers)
