"""What must be secret is drawn anew and is long enough, a share too few opens nothing, and a
session binds every rule.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from itertools import combinations, islice

import numpy as np
import pytest

from dpfl.secagg import SumGroup, SumMember, session
from dpfl.secagg.shares import combine, split, unseal
from tests.secagg.summing import at, begun, group, identity, met, numbers

OF = group(5, 4, 1, run="secrets")
THRESHOLD = 4
"""The least h with 2 h > K + t, for K = 5 members and t = 1 colluder."""


def opened_seeds(rounds: int, absent: tuple[str, ...] = ()) -> list[bytes]:
    """The seeds of the members' own masks, as a server puts them together when it opens so many
    sums.
    """
    members, found = met(OF), []
    for round in range(rounds):
        sum = begun(OF, members, numbers(OF, 2), at(members, round), silent=absent)
        for name, shown in sum.survivor_lists().items():
            sum.open(members[name].agree(shown))
        found += [sum._seed(name, name) for name in sum.survivors]
    return found


def test_seeds_of_own_masks_are_of_128_random_bits_and_never_the_same():
    """Fault: with seeds of zeros the masks still differ, since every sum is in their derivation,
    and who knows the others' keys takes them off."""
    seeds = opened_seeds(40)
    assert len(seeds) == len(set(seeds)) == 200
    bits = np.unpackbits(np.frombuffer(b"".join(seeds), np.uint8).reshape(200, 16), axis=1)
    assert bits.shape == (200, 128)
    assert bits.mean(axis=0).min() > 0.2, "every bit is as often 0 as 1, to some 8 deviations"
    assert bits.mean(axis=0).max() < 0.8


def test_a_member_s_mask_is_no_function_of_its_messages_and_of_the_others_secrets():
    """All others collude and take the masks of their pairs off: what is left is a mask of the
    member's own seed alone.
    """
    from dpfl.secagg.masks import add_pair, mask, pair_seed

    members, name = met(OF), OF.names[0]
    here = at(members, 0)
    rest = members[name].mask(here, np.zeros(50, np.uint32)).numbers
    for other in OF.names[1:]:
        add_pair(
            rest,
            pair_seed(members[other]._pairs[name], here, name, other),
            here,
            name,
            other,
            times=-1,
        )
    guesses = [
        bytes(16),
        b"\xff" * 16,
        *(bytes(15) + bytes([n]) for n in range(256)),
        *(bytes([n]) * 16 for n in range(256)),
    ]
    assert rest.any()
    for guess in guesses:
        assert not np.array_equal(rest, mask(guess, here, 50, 32))


def test_keys_of_a_member_are_its_own_for_each_session_and_each_use():
    cards = [
        SumMember(OF, name, identity(name)).advertisement for name in OF.names for _ in range(3)
    ]
    keys = [key for card in cards for key in (card.mask, card.envelope)]
    assert len(set(keys)) == len(keys) == 30


@pytest.mark.parametrize(("threshold", "members"), [(2, 3), (3, 6), (4, 5), (7, 10), (51, 100)])
def test_one_share_fewer_than_the_threshold_opens_no_seed(threshold, members):
    """Fault: shares of a polynomial of a degree too low, of which any h - 1 give the seed and h
    give it as well.
    """
    seed = secrets.token_bytes(16)
    shares = dict(enumerate(split(seed, threshold, members), start=1))
    assert len(shares) == members
    for size in {threshold, members}:
        assert combine(dict(list(shares.items())[:size])) == seed
    for size in {1, threshold // 2, threshold - 1} - {0}:
        for some in islice(combinations(shares, size), 50):
            assert combine({number: shares[number] for number in some}) != seed


def test_the_same_seed_is_split_another_way_every_time():
    seed = secrets.token_bytes(16)
    shares = [tuple(split(seed, 3, 5)) for _ in range(50)]
    for place in range(5):
        assert len({some[place] for some in shares}) == 50
    assert not any(
        int.from_bytes(share) == int.from_bytes(seed) for some in shares for share in some
    )


def test_the_envelopes_of_a_real_member_open_its_seeds_for_the_threshold_and_for_none_less():
    """From the messages alone: what colluders find in their envelopes, one fewer than are needed,
    fits no seed.
    """
    members = met(OF)
    here, owner = at(members, 0), OF.names[0]
    sent = members[owner].mask(here, numbers(OF)[owner])
    seeds = dict(members[owner]._sum.seeds)
    assert seeds.keys() == set(OF.names)
    held = {
        OF.number[name]: unseal(
            members[name]._envelope_secrets[owner],
            here,
            owner,
            name,
            sent.envelopes[name],
            len(OF.names),
        )
        for name in OF.names[1:]
    }
    assert len(held) == THRESHOLD
    for place, other in enumerate(OF.names):
        shares = {number: bundle[place] for number, bundle in held.items()}
        assert combine(shares) == seeds[other]
        for size in range(1, THRESHOLD):
            for some in combinations(shares, size):
                assert combine({number: shares[number] for number in some}) != seeds[other]


def test_a_session_binds_the_run_every_rule_every_member_and_every_key():
    """Fault: members who were told another number of colluders had one session, and so masks in
    common.
    """
    members = {name: SumMember(OF, name, identity(name)) for name in OF.names}
    cards = [member.advertisement for member in members.values()]
    of = SumGroup("secrets", OF.identities, 5, 1)
    first = of.names[0]
    again = SumMember(of, first, identity(first)).advertisement
    other_run = group(5, 5, 1, run="another")
    same_keys = [SumMember(other_run, name, identity(name)).advertisement for name in of.names]
    views = {
        "as it is": session(of, cards),
        "another t": session(replace(of, colluders=0), cards),
        "a third t": session(replace(of, colluders=2), cards),
        "another m": session(replace(of, survivors=4), cards),
        "other keys of one": session(of, [again, *cards[1:]]),
        "another run": session(other_run, same_keys),
        "fewer": session(replace(of, survivors=4).among(of.names[:4]), cards[:4]),
    }
    assert len(set(views.values())) == len(views)
    assert session(of, cards[::-1]) == views["as it is"]


def test_members_who_were_told_another_t_do_not_sum_together():
    """From outside: the same keys and the same least number of survivors, but one counts with a
    colluder less.
    """
    of = group(5, 5, 1, run="views of t")
    members = {name: SumMember(of, name, identity(name)) for name in of.names}
    odd = of.names[2]
    lax = SumMember(replace(of, colluders=0), odd, identity(odd))
    cards = [
        *(member.advertisement for name, member in members.items() if name != odd),
        lax.advertisement,
    ]
    for name, member in members.items():
        if name != odd:
            member.receive_keys(cards)
    lax.receive_keys(cards)
    assert lax.session != members[of.names[0]].session
