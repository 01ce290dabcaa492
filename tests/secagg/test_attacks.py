"""What a server, or a member, might try: refused by the members, or no more than one half of any
mask is learnt.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpfl.secagg import (
    MemberRefusal,
    RepeatSum,
    SumId,
    SumMember,
    SurvivorList,
    SurvivorVotes,
    UnmaskingShares,
)
from dpfl.secagg.masks import digest
from dpfl.secagg.shares import combine
from tests.secagg.summing import at, begun, group, identity, met, numbers, plain, summed

OF = group(10, 7, 2)
ROUNDS = iter(range(1, 10**6))


@pytest.fixture(scope="module", name="members")
def _members() -> dict[str, SumMember]:
    return met(OF)


def _shown(sum, here: SumId, survivors: tuple[str, ...], to: str) -> SurvivorList:
    """What a server that has all masked numbers may choose to say."""
    return SurvivorList(
        here, survivors, {name: sum._inputs[name].envelopes[to] for name in survivors if name != to}
    )


def _learnt(
    sum, here: SumId, answers: list[UnmaskingShares], owner: str, other: str, known: int = 0
) -> bool:
    """Whether the seed can be had from what was opened, with so many shares more of colluders."""
    if any(answer.sender == owner and other in answer.seeds for answer in answers):
        return True
    shares = {
        OF.number[answer.sender]: answer.shares[owner, other]
        for answer in answers
        if (owner, other) in answer.shares
    }
    if len(shares) + known < OF.threshold:
        return False
    seed = combine(dict(list(shares.items())[: OF.threshold]))
    assert known or digest(seed, here, owner, other) == sum._inputs[owner].digests[other]
    return True


def test_both_halves_of_a_client_cannot_be_had_by_two_lists_of_survivors(members):
    """The server tells some that all are there and others that the target is missing; two colluders
    sign and open everything. However it divides the honest, it gets enough for one half at most."""
    target, colluders = OF.names[0], OF.names[-2:]
    honest, without = OF.names[1:-2], OF.names[1:]
    got = set()
    for cut in range(len(honest) + 1):
        here = at(members, next(ROUNDS))
        sum = begun(OF, members, numbers(OF), here)
        told_all, told_less = honest[:cut], honest[cut:]
        answers = [members[name].agree(_shown(sum, here, OF.names, name)) for name in told_all]
        votes = [
            members[name].agree(_shown(sum, here, without, name))
            for name in (*told_less, *colluders)
        ]
        signatures = {vote.sender: vote.signature for vote in votes}
        for name in told_less:
            try:
                answers.append(members[name].open(SurvivorVotes(here, signatures)))
            except MemberRefusal:
                assert len(signatures) < OF.threshold
        own = _learnt(sum, here, answers, target, target, known=len(colluders))
        pairs = all(_learnt(sum, here, answers, name, target) for name in honest)
        got.add((own, pairs))
    assert got == {(True, False), (False, False), (False, True)}


def test_signatures_of_another_list_round_attempt_or_run_do_not_count(members):
    round = next(ROUNDS)
    here, later = at(members, round), at(members, round, 1)
    lists = {here: OF.names[:9], later: OF.names[:8]}
    ballots = {}
    for place, survivors in lists.items():
        sum = begun(OF, members, numbers(OF), place)
        ballots[place] = {
            name: members[name].agree(_shown(sum, place, survivors, name)).signature
            for name in survivors
        }
    with pytest.raises(MemberRefusal, match="1 members agree on these survivors, of 7"):
        members[OF.names[0]].open(SurvivorVotes(later, ballots[here]))
    few = dict(list(ballots[later].items())[: OF.threshold - 1])
    with pytest.raises(MemberRefusal, match="6 members"):
        members[OF.names[0]].open(SurvivorVotes(later, few))
    with pytest.raises(MemberRefusal, match="6 members"):
        members[OF.names[0]].open(
            SurvivorVotes(later, few | {"somebody": b"x", OF.names[9]: ballots[later][OF.names[1]]})
        )
    assert members[OF.names[0]].open(SurvivorVotes(later, ballots[later])).seeds.keys() == {
        OF.names[8],
        OF.names[9],
    }


def test_an_older_sum_is_closed_once_a_newer_has_begun(members):
    here = at(members, next(ROUNDS))
    old = begun(OF, members, numbers(OF), here)
    begun(OF, members, numbers(OF), at(members, next(ROUNDS)))
    for name, shown in old.survivor_lists().items():
        with pytest.raises(MemberRefusal, match="not open here"):
            members[name].agree(shown)


def test_who_shows_no_keys_is_left_out_of_a_session_and_of_its_sums():
    """Those who are there, if they are enough, sum among themselves, whoever else was away or was
    started again.
    """
    of = group(5, 4, run="away")
    members = {name: SumMember(of, name, identity(name)) for name in of.names[:4]}
    for member in members.values():
        member.receive_keys([other.advertisement for other in members.values()])
    values, there = numbers(of), of.among(members)
    assert (summed(there, members, values, at(members)) == plain(values, there.names)).all()
    begun(there, members, values, at(members, 1))
    with pytest.raises(MemberRefusal, match="must be members") as refused:
        members[of.names[0]].agree(SurvivorList(at(members, 1), of.names, {}))
    assert refused.value.why == "bad-survivors"


def test_members_who_were_asked_for_other_things_are_at_other_sums(members):
    """Fault if not: a server that has one client draw a thousandth of the noise takes the others'
    masks away all the same. Nothing fits: pairs do not cancel, envelopes do not open, and a vote
    for the one is none for the other."""
    round, odd = next(ROUNDS), OF.names[3]
    one, other = (
        replace(at(members, round), terms="clip 1"),
        replace(at(members, round), terms="clip 0.001"),
    )
    values = numbers(OF)
    sum = begun(OF, {name: members[name] for name in OF.names}, values, one, silent=[odd])
    apart = members[odd].mask(other, values[odd])
    sum.take(replace(apart, sum_id=one))
    answers = [
        members[name].agree(shown) for name, shown in sum.survivor_lists().items() if name != odd
    ]
    assert all((odd, odd) not in answer.shares for answer in answers)
    for answer in answers:
        sum.open(answer)
    with pytest.raises(RepeatSum, match=f"A mask of {odd}"):
        sum.total()
    with pytest.raises(MemberRefusal, match="not open here"):
        members[odd].agree(_shown(sum, one, OF.names, odd))


def test_a_vote_that_is_not_the_senders_is_not_counted(members):
    here = at(members, next(ROUNDS))
    sum = begun(OF, members, numbers(OF), here, silent=OF.names[9:])
    shown = sum.survivor_lists()
    vote = members[OF.names[0]].agree(shown[OF.names[0]])
    with pytest.raises(MemberRefusal, match="did not sign these survivors"):
        sum.vote(replace(vote, sender=OF.names[1]))
    with pytest.raises(MemberRefusal, match="not a member"):
        sum.vote(replace(vote, sender="somebody"))
