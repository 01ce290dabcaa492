"""Decides who may request what. Every request is checked before anything is looked up.

The pages are for one person at their own machine, but every web site that this person visits can
send requests there. So the requested host must be the machine's own name; otherwise another site
could point its name here. Every change needs a secret that only our own pages can read. An address
that others can reach needs a token for everything.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MOST_QUERY, MOST_BODY = 4096, 1 << 16
WRITE = "x-dpfl-write"
LOCAL = ("127.0.0.1", "localhost", "[::1]")

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src "
    "'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}


@dataclass(frozen=True)
class AccessKeys:
    """The keys that a request must have."""

    hosts: frozenset[str]
    """The host names that a request may ask for; any if there are none."""
    token: str = ""
    """The token that every request must have; none if it is empty."""
    write: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    @property
    def cookie(self) -> str:
        """The name of the cookie. It depends on the token, because a browser sends the cookies of a
        machine to all of its ports.
        """
        return f"dpfl-{hashlib.sha256(self.token.encode()).hexdigest()[:12]}"


def own_names(host: str, port: int) -> frozenset[str]:
    """Lists the host names of an address.

    Args:
        host: The address that the server listens on.
        port: Its port.

    Returns:
        The names with the port; none for an address of all networks, which has many names.
    """
    if host in ("0.0.0.0", "::"):
        return frozenset()
    names = (
        LOCAL
        if host in ("127.0.0.1", "localhost", "::1")
        else (f"[{host}]" if ":" in host else host,)
    )
    return frozenset(f"{name}:{port}" for name in names)


class AuthMiddleware:
    """Stands before the app and answers requests that are refused."""

    def __init__(self, app: App, keys: AccessKeys) -> None:
        """Puts checks before an app.

        Args:
            app: The app.
            keys: What a request must bring.
        """
        self._app, self._keys = app, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        if (place := self._redirect_target(scope)) is not None:
            await _answer(send, 303, "", {"location": place, "set-cookie": self._cookie})
        elif refusal := self.refusal(scope, headers):
            await _answer(send, *refusal)
        else:
            await self._app(scope, _bound_body(receive), _with_headers(send))

    def refusal(self, scope: Scope, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Checks a request.

        Args:
            scope: The request by ASGI.
            headers: Its headers, with names in lower case.

        Returns:
            A status and a sentence if the request is refused; None if it is answered.
        """
        if self._keys.hosts and headers.get("host", "") not in self._keys.hosts:
            return (
                421,
                "This is not the name of this machine. Open the address that dpfl ui printed.",
            )
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MOST_QUERY:
            return 414, "The address is too long."
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return 405, "Only GET, HEAD and POST are allowed."
        if self._keys.token and not self._has_token(headers):
            return 401, "Open the address with the token that dpfl ui printed."
        if (
            not headers.get("content-length", "0").isdigit()
            or int(headers.get("content-length", "0")) > MOST_BODY
        ):
            return 413, "The request is too large."
        elsewhere = headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")
        is_navigation = scope["method"] != "POST" and headers.get("sec-fetch-mode") == "navigate"
        if elsewhere and (not is_navigation or scope["path"].startswith("/api/")):
            return 403, "Another site sent this request. Open the page itself."
        return self._unwritable(scope, headers) if scope["method"] == "POST" else None

    def _unwritable(self, scope: Scope, headers: Mapping[str, str]) -> tuple[int, str] | None:
        origin = headers.get("origin")
        if (
            origin is not None
            and origin != f"{scope.get('scheme', 'http')}://{headers.get('host', '')}"
        ):
            return 403, "Another site sent this request. Open the page itself."
        if not secrets.compare_digest(headers.get(WRITE, "").encode(), self._keys.write.encode()):
            return 403, "Only the page itself may change anything. Reload the page."
        return None

    def _has_token(self, headers: Mapping[str, str]) -> bool:
        """Looks for the token in our cookie, among others of this machine, or in a header."""
        cookies = (part.strip().partition("=") for part in headers.get("cookie", "").split(";"))
        tokens = [value for name, _, value in cookies if name == self._keys.cookie] or [
            headers.get("authorization", "").removeprefix("Bearer ")
        ]
        own = self._keys.token.encode()
        return any(secrets.compare_digest(token.encode(), own) for token in tokens)

    def _redirect_target(self, scope: Scope) -> str | None:
        """Returns where to redirect a request that has the token in its address.

        The answer sets the token as a cookie, so that the new address does not need it.
        """
        if (
            not self._keys.token
            or scope["method"] != "GET"
            or len(scope["query_string"]) > MOST_QUERY
        ):
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        token = dict(query).get("token")
        if token is None or not secrets.compare_digest(token.encode(), self._keys.token.encode()):
            return None
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        path = "/" + scope["path"].lstrip("/\\")
        return f"{path}?{rest}" if rest else path

    @property
    def _cookie(self) -> str:
        return f"{self._keys.cookie}={self._keys.token}; HttpOnly; SameSite=Strict; Path=/"


async def _answer(
    send: Send, status: int, sentence: str, more: Mapping[str, str] | None = None
) -> None:
    headers = HEADERS | {"content-type": "text/plain; charset=utf-8"} | dict(more or {})
    header_list = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": header_list})
    await send({"type": "http.response.body", "body": sentence.encode()})


def _bound_body(receive: Receive) -> Receive:
    """Cuts off a body that does not end, or is longer than its header says."""
    size = 0

    async def receive_bounded() -> MutableMapping[str, Any]:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        return {"type": "http.disconnect"} if size > MOST_BODY else message

    return receive_bounded


def _with_headers(send: Send) -> Send:
    """Adds the common headers to an answer, except those that the answer sets itself."""

    async def with_headers(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            own_names = {name.lower() for name, _ in message["headers"]}
            more = [
                (name.encode(), value.encode())
                for name, value in HEADERS.items()
                if name.encode() not in own_names
            ]
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return with_headers
