"""Serves the web app on an address."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from dpfl.errors import DpflError
from dpfl.web.app import make_app
from dpfl.web.auth import AccessKeys, AuthMiddleware, own_names

MOST_CONNECTIONS = 400


def listen(host: str, port: int) -> socket.socket:
    """Binds an address, so that it accepts connections before anybody is told of it.

    Args:
        host: The address.
        port: The port; 0 for any free one.

    Returns:
        A listening socket.

    Raises:
        DpflError: If the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(128)
    except (OSError, OverflowError) as error:
        listening.close()
        raise DpflError(
            f"{host}:{port} cannot be used ({error}); choose another port with --port."
        ) from None
    return listening


def serve(root: Path, host: str, port: int, token: str, ready: Callable[[str], None]) -> None:
    """Serves the pages until Ctrl-C.

    Args:
        root: The folder of runs.
        host: The address to listen on.
        port: The port; 0 for any free one.
        token: What every request must bring; nothing if it is empty.
        ready: Called with the address to open.

    Raises:
        DpflError: If the address cannot be used.
    """
    with listen(host, port) as listening:
        number = int(listening.getsockname()[1])
        keys = AccessKeys(own_names(host, number), token)
        url_host = f"[{host}]" if ":" in host else host
        ready(f"http://{url_host}:{number}/" + (f"?token={token}" if token else ""))
        config = uvicorn.Config(
            AuthMiddleware(make_app(root, keys), keys),
            log_level="warning",
            access_log=False,
            server_header=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=10,
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=1 << 15,
        )
        uvicorn.Server(config).run(sockets=[listening])


def new_token() -> str:
    """Draws a token that nobody can guess.

    Returns:
        24 characters with 144 bits.
    """
    return secrets.token_urlsafe(18)
