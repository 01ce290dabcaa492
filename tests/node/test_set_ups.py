"""Keys of those who sum together: whose they are, for which run, and that no letter of before
changes them.
"""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpfl.protocol import secure_sum_messages
from dpfl.protocol.keys import public_key_hex
from dpfl.secagg import SumGroup, SumMember
from tests.node.loopback import ROUNDS, ask
from tests.node.summing import EVENT, NAMES, Together, said, task


def test_members_who_were_proposed_different_runs_have_no_session(together: Together) -> None:
    """The same names, keys and numbers, but one is told of more rounds: its keys are signed for
    another run.
    """
    for name in NAMES:
        together.nodes[name](together.join(name, **({"rounds": ROUNDS - 1} if name == "c" else {})))
    cards = together.cards()
    for name in NAMES:
        assert together.nodes[name].refused(ask("meet", to=name, cards=cards)) == "bad-keys"


def test_nobody_is_invented_and_nobodys_keys_are_another_ones(together: Together) -> None:
    together.joined()
    cards, node = together.cards(), together.nodes["b"]
    stranger = Ed25519PrivateKey.generate()
    group = together.group()
    keys = {**group.identities, "d": public_key_hex(stranger.public_key())}
    forged = secure_sum_messages.advertisement_to_words(
        SumMember(SumGroup(group.run, keys, 3, 1), "d", stranger).advertisement
    )
    invented = {**forged, "name": "e"}
    for shown, reason in (
        ([*cards[:3], forged], "bad-keys"),
        ([*cards, invented], "bad-keys"),
        ([*cards[:3], {**cards[3], "mask": cards[2]["mask"]}], "bad-keys"),
        ([*cards[:3], cards[2]], "bad-keys"),
        ([cards[0], *cards[2:]], "bad-keys"),
        (cards[:2], "too-few-survivors"),
        ([*cards[:3], {**cards[3], "mask": "00"}], "bad-words"),
        ([*cards[:3], {**cards[3], "more": ""}], "bad-words"),
        ("cards", "bad-words"),
    ):
        assert node.refused(ask("meet", to="b", cards=shown)) == reason
    assert node(ask("meet", to="b", cards=cards)).header["kind"] == "met"
    assert node.refused(ask("meet", to="b", order="again", cards=cards)) == "bad-keys"


def test_a_set_up_that_comes_again_does_not_end_the_session(begun) -> None:
    """A letter may come late, or be sent again by whoever carries it."""
    together, session = begun
    card, node = together.card("b"), together.nodes["b"]
    before = node.service.answer(card)
    sent = {name: together.masked(session, name) for name in NAMES}
    assert node.service.answer(card) == before
    assert said(node(together.survivors(session, "b", NAMES, sent))) == "opened"


def test_a_set_up_of_before_does_not_end_the_session_that_came_after_it(begun) -> None:
    """One that was answered, and is sent again by whoever carries letters; and one that was kept,
    and never came. What is asked of the sum under way is answered all the same."""
    together, session = begun
    node, answered, kept = together.nodes["b"], together.card("b"), together.card("b", "kept")
    meet = ask("meet", to="b", order="set-up", cards=together.cards(("a", "c", "d")))
    later = together.set_up(task_name="later")
    sent = {name: together.masked(later, name) for name in NAMES}
    for late in (answered, kept, ask("card", to="b", order="another", number=2)):
        assert node.refused(late) == "set-up-past"
    assert node.refused(meet) == "bad-keys"
    assert node.refused(together.work(session, task("b"))) == "no-keys"
    assert node.refused(together.survivors(session, "b", NAMES, sent)) == "sum-over"
    assert said(node(together.survivors(later, "b", NAMES, sent))) == "opened"
    for odd in (-1, 1.0, True, "9", None, 1 << 60):
        assert node.refused(ask("card", to="b", order="odd", number=odd)) == "bad-words"
    assert together.masked(later, "b", 1).sender == "b"
    assert together.spending("b") == {EVENT: 2}


def test_a_set_up_of_before_does_not_come_back_when_its_keys_were_dropped_for_other_runs(
    begun,
) -> None:
    together, _ = begun
    node = together.nodes["b"]
    for number in range(8):
        node(together.join("b", f"run{number}"))
        assert said(node(together.card("b", run=f"run{number}"))) == "card"
    assert node.refused(together.card("b")) == "set-up-past"
    assert said(node(together.card("b", "later"))) == "card"


def test_a_node_that_was_started_again_has_no_keys_until_the_next_set_up(begun) -> None:
    """What it sent is sent again as it was; it opens nothing and adds to nothing until there are
    new keys, and pays anew.
    """
    together, session = begun
    message = together.work(session, task("b"))
    before = together.nodes["b"].service.answer(message)
    node = together.open("b")
    assert node.service.answer(message) == before
    sent = {name: together.masked(session, name) for name in ("a", "c", "d")}
    assert node.refused(together.survivors(session, "b", NAMES, sent)) == "no-keys"
    assert node.refused(together.work(session, task("b", 1))) == "no-keys"
    assert node.refused(ask("meet", to="b", cards=[])) == "no-keys"
    assert together.spending("b") == {EVENT: 1}
    again = together.set_up(task_name="again")
    assert again != session
    assert node.refused(together.work(again, task("b"))) == "join-again"
    assert said(node(together.join("b"))) == "joined"
    assert together.masked(again, "b").sender == "b"
    assert together.spending("b") == {EVENT: 2}
    assert node.refused(together.work(session, task("b", 1))) == "no-keys"


def test_keys_come_before_numbers_and_few_runs_have_them_at_once(together: Together) -> None:
    together.joined()
    node = together.nodes["b"]
    assert node.refused(together.work("", task("b"))) == "no-keys"
    assert node.refused(together.work("0" * 64, task("b"))) == "no-keys"
    assert said(node(together.card("b"))) == "card"
    assert node.refused(together.work("", task("b"))) == "no-keys"  # nobody else's are known
    for number in range(8):
        run = f"run{number}"
        node(together.join("b", run))
        assert said(node(together.card("b", run=run))) == "card"
    assert node.refused(ask("meet", to="b", cards=[])) == "no-keys"
    assert together.spending("b") == {}
