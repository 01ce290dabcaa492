"""Keys of members: whose they are, and what members who saw other keys have in common."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpfl.secagg import (
    MemberRefusal,
    SumGroup,
    SumMember,
    session,
)
from tests.secagg.summing import group, identity


def test_a_server_that_invents_swaps_or_forges_members_is_refused_at_set_up():
    of = group(5, 4, run="set-up")
    members = {name: SumMember(of, name, identity(name)) for name in of.names}
    cards = [member.advertisement for member in members.values()]
    mine, *others = cards
    stranger = Ed25519PrivateKey.generate()
    key = stranger.public_key().public_bytes_raw().hex()
    invented = SumMember(
        SumGroup("set-up", {**of.identities, "invented": key}, 5), "invented", stranger
    ).advertisement
    other_run = SumMember(
        group(5, 4, run="older"), others[0].name, identity(others[0].name)
    ).advertisement
    forged = replace(others[0], mask=others[1].mask)
    for shown, sentence in (
        (cards[:3], "3 members advertised keys, of 4 needed"),
        ([*cards, invented], "do not match the members one to one"),
        ([*cards[:-1], invented], "do not match the members one to one"),
        ([*cards[:-1], cards[1]], "do not match the members one to one"),
        ([mine, forged, *others[1:]], "not signed by it for this run"),
        ([mine, other_run, *others[1:]], "not signed by it for this run"),
        (others, "do not include this member.s key"),
    ):
        with pytest.raises(MemberRefusal, match=sentence):
            members[mine.name].receive_keys(shown)
    members[mine.name].receive_keys(cards)
    with pytest.raises(MemberRefusal, match="agreed once"):
        members[mine.name].receive_keys(cards)
    with pytest.raises(MemberRefusal, match="not a member"):
        SumMember(of, mine.name, stranger)


def test_members_who_were_shown_other_keys_or_rules_share_no_session():
    of, laxer = group(5, 4, run="views"), group(5, 3, run="views")
    cards = [SumMember(of, name, identity(name)).advertisement for name in of.names]
    again = SumMember(
        of, of.names[4], identity(of.names[4])
    ).advertisement  # the same member, started again
    assert len({session(of, cards), session(laxer, cards), session(of, [*cards[:4], again])}) == 3


def test_a_key_of_low_order_is_refused():
    of = group(3, 2, run="low")
    members = [SumMember(of, name, identity(name)) for name in of.names]
    from dpfl.secagg.messages import words

    nothing = bytes(32)
    signed = identity(of.names[2]).sign(
        words("card", of.run, of.names[2], nothing.hex(), nothing.hex())
    )
    low = replace(members[2].advertisement, mask=nothing, envelope=nothing, signature=signed)
    with pytest.raises(MemberRefusal, match="cannot be used for key agreement"):
        members[0].receive_keys([members[0].advertisement, members[1].advertisement, low])
