"""Measures the cost of a round beyond training, with real processes on loopback: the transport of
dpfl, and Flower as documented.

    python -m benchmarks.federation [--nodes 3 10] [--bytes 100000 1000000 10000000 100000000]
    [--rounds 5] [--only ours flower]

Nodes return every message. Both have TLS, node authentication and state in sqlite. Flower runs
`grid.send_and_receive` in a server app, and a client app in its own executor. A round lasts from
the first byte to the last answer. The first round does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from dpfl.transports.flower.flower_transport import FlowerTransport
from dpfl.transports.flower.host import serve
from dpfl.transports.flower.parent import end_with_parent, parent_variable
from dpfl.transports.flower.processes import (
    QUIET,
    FlowerProcess,
    free_port,
    register,
    superlink,
    supernode,
)
from dpfl.transports.flower.tls_keys import node_key, server_keys

MOST = 1 << 30
START_SECONDS = 180.0
ROUND_SECONDS = 180.0

PROJECT = """[project]
name = "echo"
version = "1.0.0"
description = ""
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "benchmark"
[tool.flwr.app.components]
serverapp = "echo.server:app"
clientapp = "echo.client:app"
"""
CLIENT = """from flwr.app import Message
from flwr.clientapp import ClientApp
app = ClientApp()

@app.train()
def train(message, context):
    return Message(message.content, reply_to=message)
"""
SERVER = """import json, os, time
from pathlib import Path
import numpy as np
from flwr.app import ArrayRecord, Array, Message, RecordDict
from flwr.serverapp import ServerApp
app = ServerApp()

@app.main()
def main(grid, context):
    seconds = {{}}
    while len(list(grid.get_node_ids())) < {nodes}:
        time.sleep(0.2)
    for size in {sizes}:
        seconds[size] = []
        for _ in range({rounds} + 1):
            model = ArrayRecord([np.frombuffer(os.urandom(size), np.float32)])
            start = time.time()
            messages = [Message(RecordDict({{"model": model}}), dst_node_id=n, message_type="train") for n in grid.get_node_ids()]
            replies = list(grid.send_and_receive(messages, timeout={timeout}))
            assert len(replies) == {nodes} and not any(reply.has_error() for reply in replies)
            seconds[size].append(time.time() - start)
            Path({out!r}).write_text(json.dumps({{"done": False, "seconds": seconds}}))
    Path({out!r}).write_text(json.dumps({{"done": True, "seconds": seconds}}))
"""  # noqa: E501


def until(true: Callable[[], object], seconds: float) -> None:
    """Waits until something is true, and exits after a time limit."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise SystemExit(f"not within {seconds:g} s")
        time.sleep(0.05)


def start_process(
    stack: ExitStack, command: Sequence[str], environment: dict[str, str], log: Path
) -> None:
    """Starts a process that ends with the stack."""
    with log.open("ab") as file:
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=file)

    def stop() -> None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    stack.callback(stop)


def ours(folder: Path, nodes: int, sizes: Sequence[int], rounds: int) -> dict[int, list[float]]:
    """Returns the seconds of each round of dpfl, by size."""
    keys = server_keys(folder / "keys")
    seconds_by_size: dict[int, list[float]] = {}
    with ExitStack() as stack:
        link = stack.enter_context(superlink(folder / "link", "127.0.0.1", free_port(), keys))
        for index in range(nodes):
            home = folder / f"node{index}"
            register(link.address, keys.authority, node_key(home / "carrier.key"), home.name)
            command = [
                sys.executable,
                "-m",
                "benchmarks.federation",
                "--echo",
                str(home),
                link.address,
                str(keys.authority),
            ]
            start_process(stack, command, {**os.environ, **parent_variable()}, home / "log")
        transport = FlowerTransport(link.address, keys.authority, link.secret, MOST)
        stack.callback(transport.close)
        until(lambda: len(transport.nodes()) == nodes, START_SECONDS)
        for size in sizes:
            seconds_by_size[size] = [_round(transport, size) for _ in range(rounds + 1)]
    return seconds_by_size


def _round(transport: FlowerTransport, size: int) -> float:
    message, start = os.urandom(size), time.monotonic()
    waiting = {transport.send(address, message) for address in transport.nodes()}
    while waiting:
        for delivery in transport.receive(5.0):
            assert delivery.message == message
            waiting.discard(delivery.request_id)
        if time.monotonic() - start > ROUND_SECONDS:
            raise SystemExit(f"a round of {size} bytes took more than {ROUND_SECONDS:g} s")
    return time.monotonic() - start


def flower(folder: Path, nodes: int, sizes: Sequence[int], rounds: int) -> dict[int, list[float]]:
    """Returns the seconds of each round of Flower, by size."""
    keys, port = server_keys(folder / "keys"), free_port()
    address, authority, out = f"127.0.0.1:{port}", str(keys.authority), folder / "seconds.json"
    commands = Path(sys.executable).parent
    environment = {
        **os.environ,
        **QUIET,
        "FLWR_HOME": str(folder / "flwr"),
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
    }
    app = _app(folder, nodes, sizes, rounds, out)
    (folder / "flwr").mkdir()
    (folder / "flwr" / "config.toml").write_text(
        f'[superlink.lab]\naddress = "{address}"\nroot-certificates = "{authority}"\n'
    )
    with ExitStack() as stack:
        tls = (
            "--ssl-ca-certfile",
            authority,
            "--ssl-certfile",
            str(keys.certificate),
            "--ssl-keyfile",
            str(keys.key),
        )
        link = [
            str(commands / "flower-superlink"),
            "--port",
            str(port),
            *tls,
            "--enable-supernode-auth",
        ]
        start_process(
            stack, [*link, "--database", str(folder / "state.sqlite")], environment, folder / "log"
        )
        until(lambda: _registered(address, keys.authority, folder, nodes), START_SECONDS)
        for index in range(nodes):
            own = (
                "--superlink",
                address,
                "--root-certificates",
                authority,
                "--port",
                str(free_port()),
            )
            key = ("--auth-supernode-private-key", str(folder / f"node{index}.key"))
            start_process(
                stack, [str(commands / "flower-supernode"), *own, *key], environment, folder / "log"
            )
        subprocess.run(
            [str(commands / "flwr"), "run", str(app), "lab"],
            env=environment,
            check=True,
            capture_output=True,
        )
        limit = START_SECONDS + len(sizes) * (rounds + 1) * ROUND_SECONDS
        until(lambda: out.exists() and json.loads(out.read_text() or "{}").get("done"), limit)
    return {int(size): seconds for size, seconds in json.loads(out.read_text())["seconds"].items()}


def _app(folder: Path, nodes: int, sizes: Sequence[int], rounds: int, out: Path) -> Path:
    package = folder / "app" / "echo"
    package.mkdir(parents=True)
    (package.parent / "pyproject.toml").write_text(PROJECT)
    (package / "__init__.py").write_text("")
    (package / "client.py").write_text(CLIENT)
    server = SERVER.format(
        nodes=nodes, sizes=list(sizes), rounds=rounds, timeout=ROUND_SECONDS, out=str(out)
    )
    (package / "server.py").write_text(server)
    return package.parent


def _registered(address: str, authority: Path, folder: Path, nodes: int) -> bool:
    try:
        for index in range(nodes):
            register(address, authority, node_key(folder / f"node{index}.key"), f"node{index}")
    except Exception:
        return False
    return True


def echo(folder: str, server: str, authority: str) -> None:
    """Runs a node that returns every message."""
    end_with_parent()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    home = Path(folder)
    node: FlowerProcess = supernode(home, server, Path(authority), home / "carrier.key")
    serve(node, lambda message: message, MOST, stop)


def main() -> None:
    """Measures the rounds and prints a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, nargs="+", default=[3, 10])
    parser.add_argument(
        "--bytes", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000, 100_000_000]
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["ours", "flower"], nargs="+", default=["ours", "flower"])
    parser.add_argument("--echo", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.echo:
        echo(*options.echo)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # processes are ended then, too
    print(
        "| nodes | bytes | transport | seconds a round (median) | least | most "
        "|\n|---|---|---|---|---|---|",
        flush=True,
    )
    for nodes in options.nodes:
        for name in options.only:
            with tempfile.TemporaryDirectory(prefix="dpfl-federation-") as folder:
                seconds_by_size = {"ours": ours, "flower": flower}[name](
                    Path(folder), nodes, options.bytes, options.rounds
                )
            for size, seconds in seconds_by_size.items():
                warm = seconds[1:]
                row = (
                    nodes,
                    f"{size:,}",
                    name,
                    f"{statistics.median(warm):.2f}",
                    f"{min(warm):.2f}",
                    f"{max(warm):.2f}",
                )
                print("| " + " | ".join(map(str, row)) + " |", flush=True)


if __name__ == "__main__":
    main()
