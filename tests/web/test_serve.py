"""An address is taken before anybody is told of it, and a token cannot be guessed."""

from __future__ import annotations

import pytest

from dpfl.errors import DpflError
from dpfl.web.serve import listen, new_token


def test_a_free_port_is_found_and_a_used_one_is_refused() -> None:
    with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        assert port > 0
        with pytest.raises(DpflError, match=f"127.0.0.1:{port} cannot be used .*--port"):
            listen("127.0.0.1", port)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(DpflError, match="cannot be used"):
        listen("192.0.2.1", 0)


def test_tokens_differ_and_fit_into_an_address() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(
        len(token) == 24 and token.replace("-", "").replace("_", "").isalnum() for token in tokens
    )
