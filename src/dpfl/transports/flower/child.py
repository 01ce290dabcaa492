"""`python -m dpfl.transports.flower.child superlink|supernode ...`: Flower's own process, with a
few changes.

- It ends when its parent ends.
- A SuperLink answers other machines on the paths of the fleet only. Starting runs and registering
  nodes is possible from its own machine only.
- A SuperNode sleeps for tenths of a second where Flower's sleeps for three seconds, and refuses
  answers of the SuperLink that are larger than a piece of a message can be.
"""

from __future__ import annotations

import functools
import ipaddress
import sys
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from dpfl.transports.flower.flower_messages import LARGEST_ANSWER, refuse_large
from dpfl.transports.flower.parent import end_with_parent

FIRST_NAP, LAST_NAP = 0.04, 0.4
IDLE_SECONDS = 3.0
IDLE_PARTS = {"ControlEventLogMiddleware", "FleetEventLogMiddleware"}
"""Parts of a SuperLink that cost time on every call, to write an event log that nobody keeps."""
HEARTBEAT_SECONDS = 10
"""The shortest interval that a SuperLink accepts. A node that was killed is missed, and may come
back, after at most twice as long.
"""

Scope = MutableMapping[str, Any]
Asgi = Callable[[Scope, Any, Any], Awaitable[None]]


class LoopbackFilter:
    """Lets requests of other machines reach `/v1/fleet/` and nothing else."""

    def __init__(self, app: Asgi) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or _is_fleet(scope["path"]) or _is_near(scope.get("client")):
            await self.app(scope, receive, send)
            return
        await send(
            {"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]}
        )
        await send({"type": "http.response.body", "body": b""})


def _is_fleet(path: str) -> bool:
    return path.startswith("/v1/fleet/") and ".." not in path


def _is_near(client: tuple[str, int] | None) -> bool:
    try:
        return client is not None and ipaddress.ip_address(client[0]).is_loopback
    except ValueError:
        return False


class BackoffTime:
    """Stands in for the module `time` where a SuperNode waits: shortly for its own executor, and
    longer each time for the SuperLink.
    """

    def __init__(self) -> None:
        self._next = FIRST_NAP

    def sleep(self, seconds: float) -> None:
        """Sleeps for a shorter time than it is asked for.

        Args:
            seconds: How long Flower would sleep.
        """
        if seconds < IDLE_SECONDS:
            self._next = FIRST_NAP
            time.sleep(FIRST_NAP)
        else:
            time.sleep(self._next)
            self._next = min(LAST_NAP, self._next * 1.3)


def superlink() -> None:
    """Runs Flower's SuperLink with the changes."""
    from flwr.superlink import main
    from flwr.superlink.cli import flower_superlink

    make = main.create_app

    def create_app(*args: Any, **options: Any) -> Any:
        app = make(*args, **options)
        app.user_middleware[:] = [
            part for part in app.user_middleware if part.cls.__name__ not in IDLE_PARTS
        ]
        app.add_middleware(LoopbackFilter)
        return app

    main.create_app = create_app
    flower_superlink()


def supernode() -> None:
    """Runs Flower's SuperNode with the changes."""
    from flwr.supercore import heartbeat
    from flwr.supernode import fleet_http_connection, start_client_internal
    from flwr.supernode.cli import flower_supernode

    connect = fleet_http_connection.FleetHttpClient.from_server_address

    def connect_within_bounds(*args: Any, **options: Any) -> Any:
        client = connect(*args, **options)
        refuse_large(client, LARGEST_ANSWER)
        return client

    fleet_http_connection.FleetHttpClient.from_server_address = connect_within_bounds
    fleet_http_connection.HEARTBEAT_DEFAULT_INTERVAL = heartbeat.HEARTBEAT_DEFAULT_INTERVAL = (
        HEARTBEAT_SECONDS
    )
    start_client_internal.time = BackoffTime()
    start_client_internal.pull_objects = functools.partial(
        start_client_internal.pull_objects, initial_backoff=FIRST_NAP
    )
    flower_supernode()


def main() -> None:
    """Runs the process that the first argument names."""
    kind = sys.argv.pop(1)
    sys.argv[0] = f"flower-{kind}"
    end_with_parent()
    {"superlink": superlink, "supernode": supernode}[kind]()


if __name__ == "__main__":
    main()
