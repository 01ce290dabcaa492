"""Servers that do whatever comes to their mind, with t members who tell them everything: what of
the honest do they learn?

Masks are symbols. After each play those are struck out that the server can put together; sums of
what honest members sent, in which no symbol is left, are what it knows.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from dpfl.secagg import (
    MaskedInput,
    MemberRefusal,
    SumGroup,
    SumId,
    SumMember,
    SurvivorList,
    SurvivorVotes,
    UnmaskingShares,
)
from dpfl.secagg import group as rules
from dpfl.secagg.member import ballot
from dpfl.secagg.shares import unseal
from tests.secagg.summing import group, identity, met

NOTHING = np.zeros(1, np.uint32)


@dataclass
class Play:
    """One sum: who was asked for what, who was shown which list, and what came back."""

    of: SumGroup
    members: Mapping[str, SumMember]
    honest: tuple[str, ...]
    rng: random.Random
    at: dict[str, SumId]
    sent: dict[str, MaskedInput] = field(default_factory=dict)
    lists: dict[str, tuple[str, ...]] = field(default_factory=dict)
    votes: dict[tuple[SumId, tuple[str, ...]], dict[str, bytes]] = field(default_factory=dict)
    opened: list[UnmaskingShares] = field(default_factory=list)

    @property
    def colluders(self) -> list[str]:
        return [name for name in self.of.names if name not in self.honest]

    def run(self) -> None:
        for name in self.of.names:
            if name in self.colluders or self.rng.random() < 0.9:
                self.sent[name] = self.members[name].mask(self.at[name], NOTHING)
        lists = [self._list() for _ in range(self.rng.choice((1, 2, 2, 3)))]
        for name in self.rng.sample(self.honest, len(self.honest)):
            for survivors in self.rng.sample(lists, len(lists)):
                self._show(name, survivors)
        for name in self.honest:
            self._ask(name)

    def _list(self) -> tuple[str, ...]:
        size = self.rng.randint(self.of.survivors, len(self.of.names))
        return tuple(sorted(self.rng.sample(self.of.names, size)))

    def _show(self, name: str, survivors: tuple[str, ...]) -> None:
        envelopes = {
            one: self.sent[one].envelopes[name]
            for one in survivors
            if one in self.sent and one != name
        }
        try:
            answer = self.members[name].agree(SurvivorList(self.at[name], survivors, envelopes))
        except MemberRefusal:
            return
        self.lists[name] = survivors
        if isinstance(answer, UnmaskingShares):
            self.opened.append(answer)
        else:
            self.votes.setdefault((self.at[name], survivors), {})[name] = answer.signature

    def _ask(self, name: str) -> None:
        """With all votes for its list, and those of colluders, who sign anything."""
        if name not in self.lists:
            return
        survivors = self.lists[name]
        signed = dict(self.votes.get((self.at[name], survivors), {}))
        signed |= {
            one: identity(one).sign(ballot(self.at[name], survivors)) for one in self.colluders
        }
        try:
            self.opened.append(self.members[name].open(SurvivorVotes(self.at[name], signed)))
        except MemberRefusal:
            return

    def knows(self, owner: str, other: str) -> bool:
        """The seed of an honest owner: a colluder's own, told by the owner, or in enough shares."""
        if other in self.colluders:
            return True
        if any(answer.sender == owner and other in answer.seeds for answer in self.opened):
            return True
        shares = {answer.sender for answer in self.opened if (owner, other) in answer.shares}
        return (
            len(shares | {one for one in self.colluders if self._holds(one, owner)})
            >= self.of.threshold
        )

    def _holds(self, colluder: str, owner: str) -> bool:
        key, envelope = (
            self.members[colluder]._envelope_secrets[owner],
            self.sent[owner].envelopes[colluder],
        )
        return (
            unseal(key, self.at[owner], owner, colluder, envelope, len(self.of.names)) is not None
        )

    def learnt(self) -> list[set[str]]:
        """Of which honest members sums can be freed of every mask: they hang together by masks of
        pairs that are not known.
        """
        senders = [name for name in self.honest if name in self.sent]
        apart = {name: {name} for name in senders}
        closed = {name for name in senders if not self.knows(name, name)}
        for one in senders:
            for other in (name for name in self.honest if name != one):
                if self.knows(one, other) or (
                    other in self.sent and self.at[one] == self.at[other] and self.knows(other, one)
                ):
                    continue
                if other in self.sent and self.at[one] == self.at[other]:
                    joined = apart[one] | apart[other]
                    apart |= dict.fromkeys(joined, joined)
                else:
                    closed.add(one)
        return [part for part in {frozenset(part) for part in apart.values()} if not part & closed]


def played(of: SumGroup, colluders: int, plays: int, seed: int) -> list[tuple[int, int]]:
    """Of each sum that was learnt: over how many honest members, and how many lists were shown."""
    rng, members, found = random.Random(seed), met(of), []
    session = members[of.names[0]].session
    for round in range(plays):
        honest = tuple(sorted(rng.sample(of.names, len(of.names) - colluders)))
        at, other = (SumId(session, round, 0, terms) for terms in ("one", "another"))
        asked = {name: other if rng.random() < 0.05 else at for name in of.names}
        asked |= {name: at for name in of.names if name not in honest}
        play = Play(of, members, honest, rng, asked)
        play.run()
        found += [(len(part), len(set(play.lists.values()))) for part in play.learnt()]
    return found


SIZES = [(3, 2, 0), (3, 3, 1), (4, 3, 0), (4, 3, 1), (5, 4, 1), (5, 5, 2), (6, 5, 2), (7, 5, 1)]


@pytest.mark.parametrize(("members", "survivors", "colluders"), SIZES)
def test_no_strategy_learns_of_fewer_honest_members_than_the_noise_is_for(
    members: int, survivors: int, colluders: int
) -> None:
    found = played(group(members, survivors, colluders, run="strategies"), colluders, 80, members)
    assert found, "some of the plays are honest enough to open a sum"
    assert min(size for size, _ in found) >= survivors - colluders


def test_a_threshold_of_one_less_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same plays, where members take one voice less for enough: some server learns of one
    alone.
    """
    right = rules.threshold
    monkeypatch.setattr(
        rules, "threshold", lambda members, colluders: right(members, colluders) - 1
    )
    of = replace(group(4, 3, 1, run="lower"), survivors=3)
    assert of.threshold == 2
    assert min(size for size, _ in played(of, 1, 120, 0)) < 2


def test_terms_that_are_not_bound_are_found_out() -> None:
    """A member that is at another sum and is taken for one of this: its share of the noise is not
    in it.
    """
    of = group(4, 3, 1, run="terms")
    members = met(of)
    at = SumId(members[of.names[0]].session, 0, 0, "one")
    asked = dict.fromkeys(of.names, at) | {of.names[1]: replace(at, terms="another")}
    play = Play(of, members, of.names[:3], random.Random(0), asked)
    play.run()
    assert all(of.names[1] not in part and len(part) >= 2 for part in play.learnt())
