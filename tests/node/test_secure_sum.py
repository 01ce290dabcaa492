"""Nodes that sum together and a server that lies to them: refused by a fixed word in the log, or
nothing comes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpfl.client.task import SecureSumTerms
from dpfl.client.training import ClientTraining
from dpfl.errors import DpflError
from dpfl.privacy import Flat, Gaussian, Poisson, Release
from dpfl.privacy.mechanisms.noises.haar_release import HaarClip, HaarNoise
from dpfl.privacy.mechanisms.noises.integer_sum import IntegerSum
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.protocol import secure_sum_messages, task_messages
from dpfl.protocol.keys import public_key_hex
from dpfl.refusals import RefusalReason
from dpfl.secagg import MaskedSum, RefusalCause, RepeatSum
from tests.node.loopback import RELEASE as ALONE
from tests.node.loopback import ROUNDS, RUN, SIZE, ask, vector
from tests.node.summing import EVENT, NAMES, RELEASE, SHARED, Together, at, said, task


def test_every_refusal_of_a_member_has_a_word_of_its_own() -> None:
    assert {str(why) for why in RefusalCause} <= {str(reason) for reason in RefusalReason}


def test_a_sum_of_all_and_one_of_survivors(begun, spied) -> None:
    """Every node has paid when its numbers leave; what is opened is the exact sum of those who sent
    theirs.
    """
    together, session = begun
    sent = {name: together.masked(session, name) for name in NAMES}
    assert all(together.spending(name) == {EVENT: 1} for name in NAMES)
    total = MaskedSum(together.group(), at(session, task("a")), SIZE, 32)
    for masked, own in zip(sent.values(), spied, strict=True):
        assert (masked.numbers == own).mean() < 1e-3
        total.take(masked)
    for name, shown in total.survivor_lists().items():
        answer = together.nodes[name](together.survivors(session, name, shown.survivors, sent))
        total.open(
            secure_sum_messages.shares_from_fields(
                answer.header, answer.arrays, at(session, task(name)), name
            )
        )
    assert (total.total() == np.sum(spied, axis=0, dtype=np.uint32)).all()
    spied.clear()
    three = ("a", "b", "d")
    sent = {name: together.masked(session, name, 1) for name in three}
    votes = {}
    for name in three:
        answer = together.nodes[name](together.survivors(session, name, three, sent, 1))
        votes[name] = answer.header["signature"]
    total = MaskedSum(together.group(), at(session, task("a", 1)), SIZE, 32)
    for masked in sent.values():
        total.take(masked)
    total.survivor_lists()
    for name in three:
        answer = together.nodes[name](together.votes(session, name, votes, 1))
        total.open(
            secure_sum_messages.shares_from_fields(
                answer.header, answer.arrays, at(session, task(name, 1)), name
            )
        )
    assert (total.total() == np.sum(spied, axis=0, dtype=np.uint32)).all()


OTHER = public_key_hex(Ed25519PrivateKey.generate().public_key())
PROPOSED: tuple[tuple[Callable[[Together], dict[str, Any]], dict[str, Any], str], ...] = (
    (lambda t: {}, {"secure": None}, "no-secure-sums"),
    (lambda t: {}, {"secure": {"least_survivors": 4}}, "too-few-survivors"),
    (lambda t: {"sums": NoiseShares(3, 0)}, {}, "too-few-colluders"),
    (lambda t: {}, {"secure": {"least_colluders": 2}}, "too-few-colluders"),
    (lambda t: {"sums": NoiseShares(3, 2)}, {}, "too-few-survivors"),
    (lambda t: {"keys": (*list(t.keys.values())[:3], OTHER)}, {}, "unknown-member"),
    (lambda t: {"keys": ()}, {}, "unknown-member"),
    (
        lambda t: {"federation": (*NAMES, "e"), "keys": (*t.keys.values(), OTHER)},
        {},
        "unknown-member",
    ),
    (
        lambda t: {
            "federation": (*NAMES, "e"),
            "keys": (*t.keys.values(), ""),
            "sums": NoiseShares(4, 1),
        },
        {},
        "unknown-member",
    ),
    (
        lambda t: {"federation": (*NAMES, "a"), "keys": (*t.keys.values(), t.keys["a"])},
        {},
        "bad-words",
    ),
    (lambda t: {"noise": "secure"}, {}, "bad-words"),
    (lambda t: {"sums": None, "keys": ()}, {}, "bad-words"),
    (lambda t: {"events": ()}, {}, "not-trusted"),
)


def test_a_run_that_is_not_as_the_owner_of_the_data_wants_it_is_not_joined(
    together: Together,
) -> None:
    for changes, policy, reason in PROPOSED:
        section = policy.get("secure", {})
        node = together.open(
            "b", secure=None if section is None else {"members": together.keys, **section}
        )
        assert node.refused(together.join("b", **changes(together))) == reason
    assert together.spending("b") == {}
    assert '"reason": "unknown-member"' in together.nodes["b"].log()


def test_members_are_pinned_by_keys_each_of_its_own(together: Together) -> None:
    own = together.keys
    for members, sentence in (
        ({**own, "b": own["a"]}, "have the same key"),
        ({**own, "b": OTHER}, "not this node's own key"),
        ({**own, "c": "no key"}, "secure.members.c is no public key"),
        ({"a": own["a"]}, "at least 2"),
    ):
        with pytest.raises(DpflError, match=sentence):
            together.open("b", secure={"members": members})
    without = {name: f"{key} ecdsa-sha2-nistp384 AAAA" for name, key in own.items() if name != "b"}
    assert said(together.open("b", secure={"members": without})(together.join("b"))) == "joined"


def test_in_a_secure_run_nothing_leaves_unmasked(begun) -> None:
    """A server that goes back to updates of single clients, or to sums on other terms than it
    said.
    """
    together, session = begun
    for changes, reason in (
        ({"samples": ALONE, "secure_sum": None}, "unmasked"),
        ({"samples": replace(RELEASE, noise_shares=None)}, "unmasked"),
        ({"samples": replace(RELEASE, noise_shares=NoiseShares(4, 1))}, "unmasked"),
        ({"samples": replace(RELEASE, noise_shares=NoiseShares(3, 0))}, "unmasked"),
        ({"secure_sum": None}, "uncovered"),
        ({"secure_sum": replace(task("b").secure_sum, clients=3)}, "bad-words"),
        ({"secure_sum": replace(task("b").secure_sum, bound=1e20)}, "bad-words"),
        ({"steps": 2}, "uncovered"),
        ({"slope": True}, "uncovered"),
        ({"raw": True}, "raw-values"),
        ({"samples": replace(RELEASE, noise=Gaussian(0.5))}, "too-little-noise"),
        ({"samples": replace(RELEASE, clip=Flat(3.0))}, "clip-too-large"),
        ({"samples": replace(RELEASE, noise=Gaussian(1.1))}, "not-planned"),
    ):
        asked = task("b", **changes)
        message = together.work(session, asked) if asked.noise_shares else together.work("", asked)
        assert together.nodes["b"].refused(message) == reason, changes
    arrays = {"model": vector(), "correction": vector()}
    plus = ask(
        "work",
        order=f"0/train/{session[:32]}",
        task=task_messages.task_to_words(task("b")),
        arrays=arrays,
    )
    assert together.nodes["b"].refused(plus) == "bad-arrays"
    assert together.spending("b") == {}
    assert together.masked(session, "b").sender == "b"  # what was refused has changed nothing


def test_in_a_plain_run_nobody_adds_a_share(together: Together) -> None:
    changes = {"sums": None, "keys": (), "noise": "secure"}
    together.joined(**changes)
    node = together.nodes["b"]
    assert node.refused(together.work("", task("b"))) == "unmasked"
    assert node.refused(together.card("b")) == "unmasked"
    assert together.spending("b") == {}


def test_both_halves_of_one_client_are_not_to_be_had(begun) -> None:
    """The server tells two that all are there, and two that d is missing, each with what it needs
    to believe it. It has the half of d's mask that is shared out, or the other, or neither: here
    two shares of three, and no vote too many."""
    together, session = begun
    sent = {name: together.masked(session, name) for name in NAMES}
    for name in ("a", "b"):
        assert (
            said(together.nodes[name](together.survivors(session, name, NAMES, sent))) == "opened"
        )
        assert (
            together.nodes[name].refused(together.survivors(session, name, ("a", "b", "c"), sent))
            == "sum-over"
        )
    less = ("a", "b", "c")
    vote = together.nodes["c"](together.survivors(session, "c", less, sent))
    assert said(vote) == "vote"
    assert (
        together.nodes["c"].refused(together.survivors(session, "c", NAMES, sent))
        == "other-survivors"
    )
    assert (
        together.nodes["c"].refused(together.votes(session, "c", {"c": vote.header["signature"]}))
        == "too-few-votes"
    )
    assert (
        together.nodes["a"].refused(together.votes(session, "a", {"c": vote.header["signature"]}))
        == "sum-over"
    )
    assert together.nodes["d"].refused(together.votes(session, "d", {})) == "bad-survivors"
    assert '"reason": "other-survivors"' in together.nodes["c"].log()
    assert '"reason": "too-few-votes"' in together.nodes["c"].log()


def test_different_survivors_for_different_clients_are_not_opened(begun) -> None:
    together, session = begun
    sent = {name: together.masked(session, name) for name in NAMES}
    lists = {"a": ("a", "b", "c"), "b": ("a", "b", "d"), "c": ("a", "b", "c"), "d": ("b", "c", "d")}
    votes = {
        n: together.nodes[n](together.survivors(session, n, lists[n], sent)).header["signature"]
        for n in NAMES
    }
    for name in NAMES:
        assert together.nodes[name].refused(together.votes(session, name, votes)) == "too-few-votes"
    for name, odd in (("b", {"a": "00"}), ("b", {"a": 5}), ("b", [])):
        assert together.nodes[name].refused(together.votes(session, name, odd)) == "bad-words"


def test_survivors_who_are_too_few_or_invented_or_without_the_node_are_refused(begun) -> None:
    together, session = begun
    sent = {name: together.masked(session, name) for name in NAMES}
    node = together.nodes["b"]
    for names, reason in (
        (("a", "b"), "too-few-survivors"),
        (("a", "b", "e"), "bad-survivors"),
        (("a", "c", "d"), "bad-survivors"),
    ):
        assert node.refused(together.survivors(session, "b", names, sent)) == reason
    message = together.survivors(session, "b", NAMES, sent)
    assert said(node(message)) == "opened"
    assert '"reason": "too-few-survivors"' in node.log()


def test_a_round_is_not_replayed(begun) -> None:
    """The same letter has the same answer, paid for once; another of the same order, or of an older
    round, has none.
    """
    together, session = begun
    node, message = together.nodes["b"], together.work(session, task("b", 1))
    first = node.service.answer(message)
    assert node.service.answer(message) == first
    assert together.spending("b") == {EVENT: 1}
    assert node.refused(together.work(session, task("b", 1), vector(1))) == "order-changed"
    assert node.refused(together.work(session, task("b", 0))) == "sum-over"
    assert together.spending("b") == {EVENT: 1}
    other = together.set_up(task_name="again")
    assert node.refused(together.work(other, task("b", 0))) == "order-past"
    assert node.refused(together.survivors(session, "b", NAMES, {}, 1)) == "sum-over"
    assert together.spending("b") == {EVENT: 1}


def test_an_exchange_that_comes_again_is_answered_as_it_was(begun) -> None:
    together, session = begun
    sent = {name: together.masked(session, name) for name in NAMES}
    three, node = ("a", "b", "c"), together.nodes["a"]
    messages = {name: together.survivors(session, name, three, sent) for name in three}
    votes = {
        name: together.nodes[name](message).header["signature"]
        for name, message in messages.items()
    }
    assert node.service.answer(messages["a"]) == node.service.answer(messages["a"])
    last = together.votes(session, "a", votes)
    opened = node.service.answer(last)
    assert node.service.answer(last) == opened
    card = together.card("a", "new")
    assert node.service.answer(card) == node.service.answer(card)
    assert node.refused(last) == "sum-over"


@pytest.mark.parametrize("odd", ["clip", "noise", "model", "round"])
def test_a_client_that_was_asked_for_something_else_hides_the_sum(begun, odd: str) -> None:
    """Fault if not: d is told of a thousandth of the clip, and so of the noise; the others count on
    its share. So for another model, by which a server would tell d's update from the others'."""
    together, session = begun
    asked = {
        "clip": task("d", samples=replace(RELEASE, clip=Flat(1e-3))),
        "noise": task("d", samples=replace(RELEASE, noise=Gaussian(1.0), clip=Flat(0.5))),
        "model": task("d"),
        "round": task("d", 1),
    }[odd]
    model = vector(5) if odd == "model" else vector()
    sent = {name: together.masked(session, name) for name in NAMES[:3]}
    answer = together.nodes["d"](together.work(session, asked, model))
    sent["d"] = secure_sum_messages.input_from_arrays(
        answer.arrays, at(session, task("a")), "d", NAMES
    )
    total = MaskedSum(together.group(), at(session, task("a")), SIZE, 32)
    for masked in sent.values():
        total.take(masked)
    total.survivor_lists()
    for name in NAMES[:3]:
        answer = together.nodes[name](together.survivors(session, name, NAMES, sent))
        assert "d" not in answer.header["owners"]
        total.open(
            secure_sum_messages.shares_from_fields(
                answer.header, answer.arrays, at(session, task(name)), name
            )
        )
    with pytest.raises(RepeatSum, match="A mask of d cannot be put together"):
        total.total()


def test_what_no_budget_has_room_for_is_refused_before_it_is_masked(together: Together) -> None:
    together.joined(epsilon=4.5)
    session, node, made = together.set_up(epsilon=4.5), together.nodes["b"], 0
    while (answer := said(node(together.work(session, task("b", made))))) == "masked":
        made += 1
    assert answer == "over-budget"
    assert 0 < made < ROUNDS
    assert together.spending("b") == {EVENT: made}


def test_the_session_goes_by_all_that_was_proposed(together: Together) -> None:
    run = together.group().run
    for changes in (
        {"rounds": 3},
        {"sums": replace(SHARED, survivors=4)},
        {"epsilon": 1.0},
        {"model": "linear"},
    ):
        assert together.group(**changes).run != run
    assert together.group("another").run != run
    assert together.proposal("a").together(RUN, "owner") == together.proposal("d").together(
        RUN, "owner"
    )
    assert together.proposal("a").together(RUN, "owner") != together.proposal("a").together(
        RUN, "another"
    )


def test_a_node_adds_the_noise_that_it_pays_for_whatever_portion_of_it_is_stated(
    together: Together, monkeypatch
) -> None:
    """Fault if not: noise of multiplier 0.1, of which ten times as much is said to be added, counts
    as 1.
    """
    given: list[float] = []
    numbers = IntegerSum.numbers

    def seen(self: IntegerSum, *drawn: Any) -> np.ndarray:
        given.append(self.share)
        return numbers(self, *drawn)

    monkeypatch.setattr(IntegerSum, "numbers", seen)
    haar = Release(
        Poisson(0.2), HaarClip(1.0), HaarNoise(0.1, portion=10.0), noise_shares=SHARED
    ).for_model([SIZE])
    together.joined()
    assert haar.event(60) == EVENT
    together.masked(together.set_up(), "b", samples=haar)
    assert together.spending("b") == {EVENT: 1}
    assert given == [pytest.approx(1.0 / 2**0.5)]


def test_a_client_that_is_not_drawn_trains_as_well(tmp_path: Path, monkeypatch) -> None:
    """What is paid counts on it that nobody knows who was drawn, and a server can time answers."""
    together = Together(tmp_path, limits={"unit": "client"})
    trained, train = [], ClientTraining.update
    monkeypatch.setattr(ClientTraining, "update", lambda self: trained.append(1) or train(self))
    drawn = Release(Poisson(1e-9), Flat(1.0), Gaussian(1.0), noise_shares=SHARED)
    changes = {"unit": "client", "events": ((drawn.event(len(NAMES)), ROUNDS),)}
    together.joined(**changes)
    session = together.set_up(**changes)
    for round in range(2):
        together.masked(
            session,
            "b",
            round,
            clients=drawn,
            samples=None,
            secure_sum=SecureSumTerms(1.0, 1.0, len(NAMES)),
        )
    together.close()
    assert len(trained) == 2
