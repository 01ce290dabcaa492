"""A whole federation on this machine, for a first try: a server, nodes with a part of the data
each, and new keys.
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
"""How long a node may take to answer the message at hand and to end its SuperNode."""
EPSILON_MULTIPLE = 3
"""A node's epsilon in all, in multiples of the run's: room for two more runs."""


def write_layout(
    folder: Path,
    sections: Mapping[str, Mapping[str, Any]],
    limits: Mapping[str, Any],
    allow: Mapping[str, Any],
    tell: Mapping[str, Any],
    secure: Mapping[str, Any] | None = None,
) -> tuple[str, dict[str, str]]:
    """Writes the folders of a server and its nodes.

    Args:
        folder: Where to write them.
        sections: The `[data]` and other sections of each node's policy, by name.
        limits: The `[limits]` section of every policy.
        allow: The `[allow]` section of every policy.
        tell: The `[tell]` section of every policy.
        secure: The terms of the `[secure]` section of every policy; None for no secure sums.

    Returns:
        The server's address, and the line of keys of each node.
    """
    authority, owner = new_server(folder / "server", ("localhost", "127.0.0.1"))
    address, lines = f"127.0.0.1:{free_port()}", {}
    for name in sections:
        place = folder / "nodes" / name
        place.mkdir(parents=True)
        keys.new_key(place / "node.pem")
        lines[name] = (
            f"{keys.load_public(keys.public_file(place / 'node.pem'))} "
            f"{node_key(place / 'carrier.key')}"
        )
    for name, own_sections in sections.items():
        place = folder / "nodes" / name
        policy = {
            "name": name,
            **own_sections,
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
    """Runs every node as a process of its own.

    Args:
        folder: The folder that `write_layout` wrote.
        names: The nodes.

    Yields:
        The processes by name.
    """
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name in names:
            processes[name] = _node(folder / "nodes" / name)
        yield processes
    finally:
        _end(processes.values())


@contextmanager
def leaving(nodes: Mapping[str, subprocess.Popen[bytes]]) -> Iterator[None]:
    """Stops nodes before their server, so that replies that are under way arrive.

    Args:
        nodes: The processes by name.

    Yields:
        Nothing. The nodes are stopped on exit.
    """
    try:
        yield
    finally:
        _end(nodes.values())


def _end(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Tells all processes to stop, once: a second signal would end them before they answer."""
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
    """Raises if a node ended right after its start.

    Args:
        folder: The folder that `write_layout` wrote.
        nodes: The processes by name.
        seconds: How long to wait first.

    Raises:
        DpflError: A node ended; the sentence says why.
    """
    time.sleep(seconds)
    for name, process in nodes.items():
        if process.poll() is not None:
            log = folder / "nodes" / name / "output.log"
            lines = log.read_text(errors="replace").strip().splitlines()
            raise DpflError(
                f"The node {name} ended at once: {lines[-1] if lines else f'see {log}'}"
            )
