"""Letters over real processes, and what the server is told when one of them is gone."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from dpfl.errors import DpflError
from dpfl.transports.flower.flower_transport import FlowerTransport
from dpfl.transports.flower.processes import supernode
from dpfl.transports.flower.tls_keys import node_key, server_keys
from tests.conftest import Clock, wait_until
from tests.transports.flower.conftest import NODES, Echo, Federation
from tests.transports.flower.echo import MOST

pytestmark = pytest.mark.xdist_group("flower")


def of(node: Echo) -> str:
    """Its address, by its log."""
    return wait_until(lambda: re.findall(r"SuperNode ID: (\d+)\s", node.log()))[-1]


@pytest.fixture(scope="module")
def killed(federation: Federation) -> tuple[Echo, str]:
    """A node whose SuperNode was killed with a letter at hand, while others are tried: it takes a
    lease of twenty seconds.
    """
    node = federation.nodes[1]
    request_id = federation.transport.send(of(node), b"hold killed")
    node.begun("killed")
    os.kill(node.supernode(), signal.SIGKILL)
    node.let_go("killed")
    return node, request_id


def test_letters_of_any_size_come_back_from_every_node(federation: Federation) -> None:
    addresses = federation.transport.nodes()
    assert len(addresses) == len(NODES)
    for message in (b"", os.urandom(100_000), os.urandom(MOST)):
        request_ids = {
            federation.transport.send(address, message): address for address in addresses
        }
        got = [federation.answered(request_id) for request_id in request_ids]
        assert [(delivery.address, delivery.message) for delivery in got] == [
            (address, message) for address in addresses
        ]


def test_a_letter_that_is_too_large_or_fails_says_nothing(federation: Federation) -> None:
    address = federation.transport.nodes()[0]
    assert federation.asked(address, b"x" * (MOST + 1)).message is None
    assert federation.asked(address, b"fail").message is None
    assert "something of the data" not in (federation.folder / "link" / "superlink.log").read_text()
    assert federation.asked("12345", b"to nobody").message is None
    assert federation.asked(address, b"still there").message == b"still there"


def test_strangers_are_refused(
    federation: Federation, killed: tuple[Echo, str], tmp_path: Path
) -> None:
    other = server_keys(tmp_path / "other")
    node_key(tmp_path / "stranger.key")
    known = federation.nodes[0].key
    strangers = [
        supernode(
            tmp_path / "unregistered",
            federation.link.address,
            federation.keys.authority,
            tmp_path / "stranger.key",
        ),
        supernode(tmp_path / "wrong-authority", federation.link.address, other.authority, known),
    ]
    try:
        for stranger in strangers:
            stranger.launch()
        with pytest.raises(DpflError, match="cannot be reached"):
            FlowerTransport(federation.link.address, other.authority, federation.link.secret, MOST)
        with pytest.raises(DpflError, match="refuses this server"):
            FlowerTransport(
                federation.link.address, federation.keys.authority, b"another secret", MOST
            )
        for stranger in strangers:
            wait_until(lambda: not stranger.alive())  # noqa: B023
            assert "Failed to initialize the connection" in stranger.words()
    finally:
        for stranger in strangers:
            stranger.stop()
    assert len(federation.transport.nodes()) <= len(NODES)


def test_a_node_that_is_killed_is_lost_and_joins_again(
    federation: Federation, killed: tuple[Echo, str]
) -> None:
    node = federation.nodes[0]
    address = of(node)
    wait_until(lambda: address in federation.transport.nodes())
    before = node.log().count("terminated gracefully")
    request_id = federation.transport.send(address, b"hold kill")
    node.begun("kill")
    assert node.process is not None
    node.process.kill()
    node.process.wait()
    assert federation.answered(request_id).message is None
    wait_until(lambda: node.log().count("terminated gracefully") > before)
    node.start()
    wait_until(lambda: address in federation.transport.nodes())
    assert federation.asked(address, b"again").message == b"again"


def test_a_stopped_node_is_waited_for_no_longer_than_asked(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = federation.nodes[2]
    address = of(node)
    assert node.process is not None
    processes = (node.process.pid, node.supernode())
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        request_id = federation.transport.send(address, b"next")
        with monkeypatch.context() as patch:
            clock = Clock()
            until = clock.now + 3.0
            patch.setattr("dpfl.transports.flower.flower_transport.time", clock)
            assert federation.transport.receive(3.0) == []
            assert clock.now == until
        monkeypatch.setattr(federation.transport, "_life", 1.0)
        late = federation.transport.send(address, b"late")
        assert federation.answered(late).message is None, "nobody trains for a round that is over"
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)
    assert federation.answered(request_id).message == b"next"


def test_a_supernode_that_is_killed_is_started_again(
    federation: Federation, killed: tuple[Echo, str]
) -> None:
    node, request_id = killed
    address = of(node)
    assert federation.answered(request_id).message is None
    wait_until(lambda: address in federation.transport.nodes())
    assert federation.asked(address, b"again").message == b"again"


def test_a_node_that_is_told_to_stop_answers_first(
    federation: Federation, killed: tuple[Echo, str]
) -> None:
    node = federation.nodes[0]
    request_id = federation.transport.send(of(node), b"hold stop")
    node.begun("stop")
    assert node.process is not None
    node.process.terminate()
    node.let_go("stop")
    assert federation.answered(request_id).message == b"hold stop"
    node.leave()


def test_a_node_does_not_wait_for_the_rest_of_a_letter_when_it_is_told_to_stop(
    federation: Federation, killed: tuple[Echo, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when its server was taken down before it: the rest never comes, and would be waited for an
    hour.
    """
    node, _ = killed  # it runs again
    wait_until(lambda: of(node) in federation.transport.nodes())
    with monkeypatch.context() as patch:
        patch.setattr("flwr.supercore.runtime.RuntimeHttpClient.PushObject", lambda *_: None)
        federation.transport.send(of(node), b"half")
    wait_until((node.folder / "waits").exists)
    assert node.process is not None
    node.process.terminate()
    node.leave()


def test_the_superlink_may_be_killed_while_a_node_works(federation: Federation) -> None:
    node = federation.nodes[2]
    address = of(node)
    request_id = federation.transport.send(address, b"hold link")
    node.begun("link")
    os.kill(federation.link.pid, signal.SIGKILL)
    assert federation.transport.nodes() == []
    meanwhile = federation.transport.send(address, b"sent while it was away")
    assert federation.transport.receive(0.2) == []
    node.let_go("link")
    federation.link.start()
    assert federation.answered(request_id).message == b"hold link"
    assert federation.answered(meanwhile).message == b"sent while it was away"
