"""An app with foreign code, uploaded by `flwr run` and started by the SuperLink's own operator: no
node runs a line of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dpfl.transports.flower.executor import REFUSAL
from dpfl.transports.flower.processes import QUIET
from tests.conftest import PATIENCE, wait_until
from tests.transports.flower.conftest import NODES, Federation

pytestmark = pytest.mark.xdist_group("flower")

PROJECT = """[project]
name = "foreign"
version = "1.0.0"
description = ""
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "somebody"
[tool.flwr.app.components]
serverapp = "foreign.server:app"
clientapp = "foreign.client:app"
"""
CLIENT = """from pathlib import Path
Path({trace!r}).write_text("imported")
from flwr.app import Message
from flwr.clientapp import ClientApp
app = ClientApp()

@app.train()
def train(message, context):
    Path({trace!r}).write_text("called")
    return Message(message.content, reply_to=message)
"""
SERVER = """import json, time
from pathlib import Path
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp
from dpfl.transports.flower.grid_transport import GridTransport
app = ServerApp()

@app.main()
def main(grid, context):
    asked = [
        Message(RecordDict({{"words": ConfigRecord({{"a": 1}})}}), dst_node_id=node, message_type=kind)
        for node in grid.get_node_ids() for kind in ("train", "query", "query.dpfl")
    ]
    waiting, said = set(grid.push_messages(asked)), []
    until = time.time() + {patience}
    while waiting and time.time() < until:
        for reply in grid.pull_messages(waiting):
            waiting.discard(reply.metadata.reply_to_message_id)
            said.append(reply.error.reason if reply.has_error() else "content")
        time.sleep(0.1)
    post = GridTransport(grid, 1 << 20)
    tickets = {{post.send(address, b"a letter"): address for address in post.nodes()}}
    letters, until = [], time.time() + {patience}
    while len(letters) < len(tickets) and time.time() < until:
        letters += [one.message.decode() for one in post.receive(1.0) if tickets[one.request_id] == one.address and one.message]
    whole = Path({said!r}).with_suffix(".new")
    whole.write_text(json.dumps([said, letters]))
    whole.replace({said!r})
"""  # noqa: E501


def test_a_foreign_app_is_not_run_at_a_node(federation: Federation, tmp_path: Path) -> None:
    trace, said = tmp_path / "trace", tmp_path / "said.json"
    package = tmp_path / "app" / "foreign"
    package.mkdir(parents=True)
    (package.parent / "pyproject.toml").write_text(PROJECT)
    (package / "__init__.py").write_text("")
    (package / "client.py").write_text(CLIENT.format(trace=str(trace)))
    (package / "server.py").write_text(SERVER.format(said=str(said), patience=PATIENCE))
    home = tmp_path / "home"
    home.mkdir()
    address, authority = federation.link.address, str(federation.keys.authority)
    (home / "config.toml").write_text(
        f'[superlink.lab]\naddress = "{address}"\nroot-certificates = "{authority}"\n'
    )
    commands = Path(sys.executable).parent
    environment = {
        **os.environ,
        **QUIET,
        "FLWR_HOME": str(home),
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
    }
    operator = subprocess.Popen(
        [
            *(
                str(commands / "flower-superexec"),
                "--root-certificates",
                authority,
                "--runtime-api-address",
                address,
            ),
            *(
                "--superexec-auth-secret-file",
                str(federation.keys.secret),
                "--parent-pid",
                str(os.getpid()),
            ),
        ],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        subprocess.run(
            [str(commands / "flwr"), "run", str(package.parent), "lab"],
            env=environment,
            check=True,
            capture_output=True,
            timeout=PATIENCE,
        )
        answers = wait_until(lambda: said.exists() and said.read_text())
    finally:
        operator.terminate()
        operator.wait(PATIENCE)
    replies, messages = json.loads(answers)
    assert len(replies) == 3 * len(NODES)
    assert replies.count(REFUSAL) == 2 * len(NODES)
    assert "content" not in replies
    assert not trace.exists()
    assert len(messages) == len(NODES)
    assert all(
        "a letter" in message for message in messages
    )  # an app of the operator's own reaches the nodes by letters, too
