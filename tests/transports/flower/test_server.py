"""The two keys of a node, as its owner gives them to a server."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpfl.errors import DpflError
from dpfl.protocol.keys import public_key_hex
from dpfl.transports.flower.server import NodeKeys, carry_messages, new_server
from dpfl.transports.flower.tls_keys import node_key


def test_the_line_of_a_node_has_both_of_its_keys(tmp_path: Path) -> None:
    own = public_key_hex(Ed25519PrivateKey.generate().public_key())
    carrier = node_key(tmp_path / "carrier.key")
    keys = NodeKeys.parse("north", f"{own} {carrier}\n")
    assert (public_key_hex(keys.message_key), keys.carrier) == (own, carrier)
    with pytest.raises(DpflError, match="lacks the second key"):
        NodeKeys.parse("north", own)
    with pytest.raises(DpflError, match="is not the line"):
        NodeKeys.parse("north", carrier)


def test_a_server_keeps_its_keys(tmp_path: Path) -> None:
    first = new_server(tmp_path, ("localhost",))
    assert new_server(tmp_path, ("localhost",)) == first


@pytest.mark.parametrize("address", ["localhost", ":9092", "localhost:0", "localhost:70000"])
def test_an_address_without_a_host_and_a_port_is_refused(tmp_path: Path, address: str) -> None:
    with (
        pytest.raises(DpflError, match="give a host and a port"),
        carry_messages(tmp_path, address, {}, 1 << 20),
    ):
        pass
