"""A whole federation on this machine, for a first try: a server, nodes with data dealt to them,
keys made on the spot.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tomli_w

from dpfl.errors import DpflError
from dpfl.protocol import keys
from dpfl.transports.flower.processes import free_port
from dpfl.transports.flower.server import new_server
from dpfl.transports.flower.tls_keys import node_key

LEAVING_SECONDS = 60.0
"""A node answers the letter at hand, lets it out, and ends its SuperNode."""
ALLOWED = 3
"""A node's epsilon in all, as many times that of the run: room for two more."""


def write_layout(
    folder: Path,
    dealt: Mapping[str, Mapping[str, Any]],
    limits: Mapping[str, Any],
    allow: Mapping[str, Any],
    tell: Mapping[str, Any],
    secure: Mapping[str, Any] | None = None,
) -> tuple[str, dict[str, str]]:
    """A server and its nodes, each with a folder of its own: the server's address, and the line of
    each node's keys. With `secure` the nodes sum with each other."""
    authority, owner = new_server(folder / "server", ("localhost", "127.0.0.1"))
    address, lines = f"127.0.0.1:{free_port()}", {}
    for name in dealt:
        place = folder / "nodes" / name
        place.mkdir(parents=True)
        keys.new_key(place / "node.pem")
        lines[name] = (
            f"{keys.load_public(keys.public_file(place / 'node.pem'))} "
            f"{node_key(place / 'carrier.key')}"
        )
    for name, sections in dealt.items():
        place = folder / "nodes" / name
        policy = {
            "name": name,
            **sections,
            "owners": {"server": owner},
            "limits": dict(limits),
            "allow": dict(allow),
            "tell": dict(tell),
            "server": {"address": address, "ca": str(authority.authority.resolve())},
        }
        (place / "policy.toml").write_text(
            tomli_w.dumps(policy | ({"secure": {"members": lines, **secure}} if secure else {}))
        )
    return address, lines


@contextmanager
def run_federation(
    folder: Path, names: Mapping[str, str]
) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Every node as a process of its own."""
    started: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name in names:
            started[name] = _node(folder / "nodes" / name)
        yield started
    finally:
        _end(started.values())


@contextmanager
def leaving(nodes: Mapping[str, subprocess.Popen[bytes]]) -> Iterator[None]:
    """They end with what is inside: before their server does, without which the letter at hand has
    nowhere to go.
    """
    try:
        yield
    finally:
        _end(nodes.values())


def _end(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """All are told to stop at once, and once: a second word would end them on their way."""
    alive = [process for process in processes if process.poll() is None]
    for process in alive:
        process.terminate()
    for process in alive:
        try:
            process.wait(LEAVING_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _node(place: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "dpfl.cli", "node", "run", str(place / "policy.toml")]
    with (place / "output.log").open("ab") as output:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            env={**os.environ, "DPFL_PARENT": str(os.getpid())},
        )  # fmt: skip


def refuse_ended(
    folder: Path, nodes: Mapping[str, subprocess.Popen[bytes]], seconds: float = 0.5
) -> None:
    """A node that ends at once says why."""
    time.sleep(seconds)
    for name, process in nodes.items():
        if process.poll() is not None:
            said = (
                (folder / "nodes" / name / "output.log")
                .read_text(errors="replace")
                .strip()
                .splitlines()
            )
            raise DpflError(
                f"The node {name} ended at once: {said[-1] if said else 'nothing was said'}"
            )
