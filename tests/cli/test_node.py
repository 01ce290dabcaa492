"""`dpfl node`: a folder that is made, checked in plain words, and states what it spent; whatever is
wrong is one sentence.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dpfl.cli.node import app
from dpfl.errors import DpflError
from dpfl.node.policy import read
from dpfl.node.statement import check as checked
from dpfl.protocol.keys import load_public, public_key_hex
from tests.conftest import PATIENCE
from tests.node.loopback import OWNER, Asked, join, new_node, work, write_policy


def run(*words: Any) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_folder_is_made_with_a_policy_to_be_edited_and_keys_and_its_line_is_printed(
    tmp_path: Path,
) -> None:
    folder, owner = tmp_path / "boston", public_key_hex(OWNER.public_key())
    done = run("init", folder, "--owner", owner, "--server", "fl.example.org:9092")
    assert done.exit_code == 0, done.output
    line = done.output.splitlines()[-1]
    assert line.startswith(f'boston = "{load_public(folder / "node.pem.pub")} ecdsa-sha2-nistp384 ')
    assert (folder / "node.pem").stat().st_mode & 0o777 == 0o600
    charter = read(folder)
    assert (charter.name, charter.server.address, list(charter.owners)) == (
        "boston",
        "fl.example.org:9092",
        [owner],
    )
    assert charter.allow.variants == ("sound",)
    assert charter.tell.secure
    again = run("init", folder)
    assert isinstance(again.exception, DpflError)
    assert "already" in str(again.exception)


def test_a_policy_that_was_not_edited_says_what_is_missing(tmp_path: Path) -> None:
    run("init", tmp_path / "a")
    found = run("check", tmp_path / "a")
    assert isinstance(found.exception, DpflError)
    assert "owners.study is no public key" in str(found.exception)


def test_a_node_in_order_says_so_and_what_leaves(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        policy = new_node(
            tmp_path / "b", server={"address": address}, limits={"epsilon_a_year": 20.0}
        )
        (tmp_path / "b" / "ca.crt").touch()
        found = run("check", policy)
        assert found.exit_code == 0, found.output
        assert "NO " not in found.output
        node = Asked.open(policy)
        node(join())
        node(work())
        told = json.loads(run("check", policy, "--json").output)
        node.service.close()
    parts = {part["part"]: part["words"] for part in told["parts"] if part["good"]}
    assert set(parts) == {"key", "data", "memory", "ledger", "entropy", "clock", "disk", "server"}
    assert "60 samples of 1 x 28 x 28" in parts["data"]
    assert "1 debits; epsilon" in parts["ledger"]
    assert "for one sample (add/remove one), delta 1e-05, by rdp" in parts["ledger"]
    assert any(
        "epsilon at most 30 in all, 20 per year, at delta 1e-05" in line for line in told["leaves"]
    )
    assert not any("WITHOUT" in line for line in told["leaves"])
    write_policy(tmp_path / "b", tell={"trusted": True, "bare": True})
    assert (
        sum(
            "WITHOUT" in line
            for line in json.loads(run("check", policy, "--json").output)["leaves"]
        )
        == 2
    )


def test_what_is_not_in_order_is_said_each_by_itself(tmp_path: Path) -> None:
    policy = new_node(tmp_path / "b", server={"address": "127.0.0.1:1"})
    (tmp_path / "b" / "ca.crt").touch()
    (tmp_path / "b" / "node.pem").chmod(0o644)
    (tmp_path / "b" / "own.npz").write_bytes(b"no")
    found = run("check", policy)
    assert found.exit_code == 2
    bad = [line for line in found.output.splitlines() if line.startswith("NO ")]
    assert [line.split()[1] for line in bad] == ["key", "data", "server"]
    write_policy(tmp_path / "b", server={"address": "nowhere"})
    assert "give a host and a port" in run("check", policy).output


def test_a_statement_is_written_and_can_be_checked_with_the_node_s_key(tmp_path: Path) -> None:
    policy = new_node(tmp_path / "b")
    nothing = run("statement", policy, "--out", tmp_path / "s.json")
    assert isinstance(nothing.exception, DpflError)
    node = Asked.open(policy)
    node(join())
    node(work())
    node.service.close()
    done = run("statement", policy, "--out", tmp_path / "s.json")
    assert done.exit_code == 0, done.output
    assert "for one sample (add/remove one), delta 1e-05, by rdp" in done.output
    given, key = (
        json.loads((tmp_path / "s.json").read_text()),
        load_public(tmp_path / "b" / "node.pem.pub"),
    )
    assert checked(given, key)["node"] == "b"
    for path, value in (("spent", 0.1), ("limit", 99.0), ("unit", "client")):
        with pytest.raises(DpflError, match="not signed by its key, or was changed"):
            checked({**given, "statement": {**given["statement"], path: value}}, key)
    with pytest.raises(DpflError, match="not signed"):
        checked(given, public_key_hex(OWNER.public_key()))


@pytest.mark.parametrize("words", [["check", "nowhere"], ["statement", "nowhere"], ["init", "a b"]])
def test_what_is_wrong_is_one_sentence_and_exit_code_2(tmp_path: Path, words: list[str]) -> None:
    code = "from dpfl.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "node", *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=PATIENCE,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("dpfl: ")
    assert done.stderr.count("\n") == 1
