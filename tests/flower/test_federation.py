"""Letters over real processes, and what the server is told when one of them is gone."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from dpfl.errors import DpflError
from dpfl.flower.keys import node_key, server_keys
from dpfl.flower.messages import LIFE_SECONDS
from dpfl.flower.post import FlowerPost
from dpfl.flower.processes import supernode
from tests.flower.conftest import NODES, Echo, Federation, soon
from tests.flower.echo import MOST

pytestmark = pytest.mark.xdist_group("flower")


def of(node: Echo) -> str:
    """Its address, by its log."""
    return soon(lambda: (node.folder / "supernode.log").read_text().split("SuperNode ID: ")[-1].split()[0])


def taken(node: Echo, count: int) -> None:
    soon(lambda: (node.folder / "supernode.log").read_text().count("Received successfully") >= count)


def received(node: Echo) -> int:
    return (node.folder / "supernode.log").read_text().count("Received successfully")


@pytest.fixture(scope="module")
def killed(federation: Federation) -> tuple[Echo, str]:
    """A node whose SuperNode was killed with a letter at hand, while others are tried: it takes a lease of twenty seconds."""
    node = federation.nodes[1]
    before = received(node)
    ticket = federation.post.send(of(node), b"wait 2")
    taken(node, before + 1)
    os.kill(node.supernode(), signal.SIGKILL)
    return node, ticket


def test_letters_of_any_size_come_back_from_every_node(federation: Federation) -> None:
    addresses = federation.post.nodes()
    assert len(addresses) == len(NODES)
    for letter in (b"", os.urandom(100_000), os.urandom(MOST)):
        tickets = {federation.post.send(address, letter): address for address in addresses}
        got = [federation.answered(ticket) for ticket in tickets]
        assert [(delivery.address, delivery.letter) for delivery in got] == [(address, letter) for address in addresses]


def test_a_letter_that_is_too_large_or_fails_says_nothing(federation: Federation) -> None:
    address = federation.post.nodes()[0]
    assert federation.asked(address, b"x" * (MOST + 1)).letter is None
    assert federation.asked(address, b"fail").letter is None
    assert "something of the data" not in (federation.folder / "link" / "superlink.log").read_text()
    assert federation.asked("12345", b"to nobody").letter is None
    assert federation.asked(address, b"still there").letter == b"still there"


def test_strangers_are_refused(federation: Federation, killed: tuple[Echo, str], tmp_path: Path) -> None:
    other = server_keys(tmp_path / "other")
    node_key(tmp_path / "stranger.key")
    known = federation.nodes[0].key
    strangers = [
        supernode(tmp_path / "unregistered", federation.link.address, federation.keys.authority, tmp_path / "stranger.key"),
        supernode(tmp_path / "wrong-authority", federation.link.address, other.authority, known),
    ]
    try:
        for stranger in strangers:
            stranger.launch()
        with pytest.raises(DpflError, match="cannot be reached"):
            FlowerPost(federation.link.address, other.authority, federation.link.secret, MOST)
        with pytest.raises(DpflError, match="refuses us"):
            FlowerPost(federation.link.address, federation.keys.authority, b"another secret", MOST)
        for stranger in strangers:
            soon(lambda: not stranger.alive(), 30)  # noqa: B023
            assert "Failed to initialize the connection" in stranger.words()
    finally:
        for stranger in strangers:
            stranger.stop()
    assert len(federation.post.nodes()) <= len(NODES)


def test_a_node_that_is_told_to_stop_answers_first(federation: Federation, killed: tuple[Echo, str]) -> None:
    node = federation.nodes[0]
    before = received(node)
    ticket = federation.post.send(of(node), b"wait 3")
    taken(node, before + 1)
    time.sleep(1.0)
    assert node.process is not None
    node.process.terminate()
    assert federation.answered(ticket).letter == b"wait 3"
    assert node.process.wait(30) == 0
    node.start()


def test_a_node_does_not_wait_for_the_rest_of_a_letter_when_it_is_told_to_stop(
    federation: Federation, killed: tuple[Echo, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when its server was taken down before it: the rest never comes, and would be waited for a minute."""
    node = federation.nodes[0]
    soon(lambda: of(node) in federation.post.nodes())
    before = (node.folder / "supernode.log").read_text().count("Receiving:")
    with monkeypatch.context() as patch:
        patch.setattr("flwr.supercore.runtime.RuntimeHttpClient.PushObject", lambda *_: None)
        federation.post.send(of(node), b"half")
    soon(lambda: (node.folder / "supernode.log").read_text().count("Receiving:") > before)
    time.sleep(1.0)
    assert node.process is not None
    node.process.terminate()
    assert node.process.wait(30) == 0
    node.start()


def test_a_node_that_is_killed_is_lost_and_joins_again(federation: Federation, killed: tuple[Echo, str]) -> None:
    node = federation.nodes[0]
    address = of(node)
    soon(lambda: address in federation.post.nodes())
    before = received(node)
    ticket = federation.post.send(address, b"wait 60")
    taken(node, before + 1)
    assert node.process is not None
    node.process.kill()
    node.process.wait()
    began = time.monotonic()
    assert federation.answered(ticket).letter is None
    assert time.monotonic() - began < 15
    node.start()
    soon(lambda: address in federation.post.nodes())
    assert federation.asked(address, b"again").letter == b"again"


def test_a_stopped_node_is_waited_for_no_longer_than_asked(federation: Federation) -> None:
    node = federation.nodes[2]
    address = of(node)
    assert node.process is not None
    processes = (node.process.pid, node.supernode())
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        federation.post._life = 1.5
        late = federation.post.send(address, b"late")
        federation.post._life = LIFE_SECONDS
        began = time.monotonic()
        assert federation.post.receive(1.0) == []
        assert 1.0 <= time.monotonic() - began < 5.0
        assert federation.answered(late).letter is None, "nobody trains for a round that is over"
        ticket = federation.post.send(address, b"next")
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)
    assert federation.answered(ticket, 30).letter == b"next"


def test_a_supernode_that_is_killed_is_started_again(federation: Federation, killed: tuple[Echo, str]) -> None:
    node, ticket = killed
    address = of(node)
    assert federation.answered(ticket, 40).letter is None
    soon(lambda: address in federation.post.nodes())
    assert federation.asked(address, b"again").letter == b"again"


def test_the_superlink_may_be_killed_while_a_node_works(federation: Federation) -> None:
    address = of(federation.nodes[2])
    ticket = federation.post.send(address, b"wait 1.5")
    time.sleep(1.0)
    os.kill(federation.link.pid, signal.SIGKILL)
    assert federation.post.nodes() == []
    meanwhile = federation.post.send(address, b"sent while it was away")
    assert federation.post.receive(0.2) == []
    federation.link.start()
    assert federation.answered(ticket, 40).letter == b"wait 1.5"
    assert federation.answered(meanwhile, 40).letter == b"sent while it was away"
