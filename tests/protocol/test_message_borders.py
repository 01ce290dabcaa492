"""The largest letter that is read, and the smallest that is not; what a node is asked beside the
usual, refused.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpfl.client.descent.optimisers import SGD
from dpfl.client.runner import ClientRunner
from dpfl.errors import DpflError
from dpfl.protocol import messages
from dpfl.refusals import ProtocolError
from tests.client.small_client import PLAIN, PRIVATE, site, start

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
MANY = 1 << 24


def arrays(count: int) -> dict[str, np.ndarray]:
    return {f"a{number:03d}": np.full(2, number, np.float32) for number in range(count)}


def signed(body: bytes) -> bytes:
    return body + KEY.sign(body)


def reread(message: bytes, most: int = MANY) -> messages.SignedMessage:
    return messages.read(message, KEY.public_key(), most)


def refused(message: bytes, most: int = MANY) -> str:
    with pytest.raises(ProtocolError) as bad:
        reread(message, most)
    return str(bad.value.reason)


def test_a_letter_has_64_arrays_at_most():
    assert len(reread(messages.write({}, arrays(64), KEY)).arrays) == 64
    with pytest.raises(ProtocolError):
        messages.write({}, arrays(65), KEY)
    entries = [
        {"dtype": "uint8", "name": f"a{number:03d}", "offset": 0, "shape": [0]}
        for number in range(65)
    ]
    for count, reason in ((64, ""), (65, "bad-arrays")):
        words = messages._canonical({"arrays": entries[:count]})
        message = signed(b"DPFL2" + len(words).to_bytes(4, "little") + words)
        assert (refused(message) if reason else "") == reason


def test_an_array_has_8_dimensions_at_most():
    assert (
        reread(messages.write({}, {"a": np.zeros((1,) * 8, np.float32)}, KEY)).arrays["a"].ndim == 8
    )
    with pytest.raises(ProtocolError):
        messages.write({}, {"a": np.zeros((1,) * 9, np.float32)}, KEY)


def test_a_letter_is_as_long_as_is_allowed_and_its_head_a_mebibyte():
    message = messages.write({"x": "y"}, arrays(3), KEY)
    assert reread(message, len(message)).header == {"x": "y"}
    assert refused(message, len(message) - 1) == "too-large"
    room = (1 << 20) - len(messages._canonical({"arrays": [], "x": ""}))
    assert len(reread(messages.write({"x": "y" * room}, {}, KEY)).header["x"]) == room
    with pytest.raises(ProtocolError):
        messages.write({"x": "y" * (room + 1)}, {}, KEY)


def test_a_letter_that_ends_early_or_late_is_none():
    message = messages.write({"x": "y"}, arrays(3), KEY)
    for wrong in (message[:-1], message[:72], message[:-65], b"DPFL3" + message[5:], b""):
        assert refused(wrong) in ("not-a-letter", "bad-signature")
    assert refused(signed(message[:-64] + b"\0")) == "bad-arrays"
    assert refused(signed(message[:-65])) == "bad-arrays"
    assert refused(signed(b"DPFL2" + (1 << 20).to_bytes(4, "little") + b"{}")) == "bad-head"


def test_norms_of_gradients_are_of_public_clients_alone(tmp_path: Path):
    asked = replace(PRIVATE, norms=True)
    node = ClientRunner(site(tmp_path, ledgers=None))
    with pytest.raises(DpflError, match="whose data is public"):
        node.work(asked, start())
    node.close()
    node = ClientRunner(site(tmp_path, ledgers=None, public=range(1, 2)))
    raw = node.work(asked, start()).raw
    assert raw is not None
    assert len(raw["norms"]) == 30
    with pytest.raises(DpflError, match="whose data is public"):
        node.work(replace(PLAIN, norms=True), start())
    node.close()


@pytest.mark.parametrize("rate", [0.0, -0.1, math.inf, math.nan])
def test_a_rate_is_above_zero_and_finite(rate: float):
    with pytest.raises(DpflError, match="learning rate"):
        SGD(rate)
