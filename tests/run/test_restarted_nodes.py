"""Nodes that are started again, set back, or of an earlier version."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dpfl.cli.app import app
from dpfl.config.experiment import parse
from dpfl.engines.head_memory import HeadMemory
from dpfl.errors import DpflError
from dpfl.node.service import Service
from dpfl.protocol.messages import SignedMessage
from dpfl.refusals import RefusalReason
from tests.loopback import federation
from tests.run.loopback_runs import BASE, spent


def restarted(transport, folder: Path, name: str, copy: Path | None = None) -> None:
    """The node of a name is started again, with its folder as a copy has it where one is given."""
    transport.services.pop(name).close()
    if copy:
        shutil.rmtree(folder / name)
        shutil.copytree(copy, folder / name)
    transport.services[name] = Service.open(folder / name / "policy.toml")


def at_round(transport, number: int, what) -> None:
    """Done once, as the first order of a round is sent."""
    send, done = transport.send, []

    def sending(address: str, message: bytes) -> str:
        if f'"order":"{number}/train"'.encode() in message and not done:
            done.append(number)
            what()
        return send(address, message)

    transport.send = sending


def test_a_node_that_is_started_again_in_a_run_joins_again_and_loses_nothing(tmp_path) -> None:
    experiment = parse(BASE | {"privacy": {"accountant": "rdp"}})
    transport, terms = federation(tmp_path / "nodes", experiment)
    at_round(transport, 1, lambda: restarted(transport, tmp_path / "nodes", "node-1"))
    result = experiment.serve(transport, terms, tmp_path / "run")
    assert not result.lost_replies
    assert [sum(events.values()) for events in spent(tmp_path / "nodes", transport.services)] == [
        6,
        6,
        6,
    ]
    known = json.loads((tmp_path / "run" / "heads.json").read_text())
    assert [len(heads) for heads in known.values()] == [1, 1, 1], (
        "the last of each shows all before it"
    )
    said = json.loads((tmp_path / "run" / "nodes" / "node-1.json").read_text())["statement"]
    assert known["node-1"][0] == said["ledger_head"]
    assert said["ledger_head"]["head"]["starts"][0][0] == 2


def test_a_node_that_is_set_back_in_a_run_is_out_of_it_before_it_pays(tmp_path) -> None:
    """Ledger, orders, log and replies, from the first round: without a head it would make the
    second one again.
    """
    experiment = parse(BASE | {"privacy": {"accountant": "rdp"}})
    transport, terms = federation(tmp_path / "nodes", experiment)
    at_round(
        transport, 1, lambda: shutil.copytree(tmp_path / "nodes" / "node-1", tmp_path / "copy")
    )
    at_round(
        transport, 2, lambda: restarted(transport, tmp_path / "nodes", "node-1", tmp_path / "copy")
    )
    result = experiment.serve(transport, terms, tmp_path / "run")
    assert len(result.lost_replies) == 1
    assert "reconcile" in result.lost_replies[0]
    assert [
        sum(events.values()) for events in spent(tmp_path / "nodes", sorted(transport.services))
    ] == [6, 2, 6]
    transport.services.pop("node-1").close()
    assert (
        CliRunner()
        .invoke(app, ["ledger", "reconcile", str(tmp_path / "nodes" / "node-1")])
        .exit_code
        == 0
    )
    assert spent(tmp_path / "nodes", ["node-1"]) == [
        dict.fromkeys(spent(tmp_path / "nodes", ["node-0"])[0], 4)
    ]


@pytest.mark.parametrize("forgets", [False, True])
def test_a_node_that_is_set_back_between_runs_is_told_by_the_server_or_by_another_node(
    tmp_path, forgets: bool
) -> None:
    experiment = parse(
        BASE
        | {
            "privacy": {"accountant": "rdp"},
            "budget": BASE["budget"] | {"rounds": 1, "epsilon": 2.0},
        }
    )
    transport, terms = federation(tmp_path / "nodes", experiment)
    terms = replace(terms, heads=tmp_path / "heads.json")
    shutil.copytree(tmp_path / "nodes" / "node-1", tmp_path / "copy")
    experiment.serve(transport, terms, tmp_path / "one")
    if forgets:
        (tmp_path / "heads.json").unlink()
    restarted(transport, tmp_path / "nodes", "node-1", tmp_path / "copy")
    result = experiment.serve(transport, terms, tmp_path / "two")
    assert result.notes[0].startswith(
        "node-1 takes no part: The node's ledger lacks releases that the node has signed"
    )
    assert [
        sum(events.values()) for events in spent(tmp_path / "nodes", sorted(transport.services))
    ] == [4, 0, 4]


def test_a_node_whose_machine_is_set_back_while_it_runs_is_told_after_one_reply(
    tmp_path, monkeypatch
) -> None:
    """Memory and disk from one moment: it needs not join again, and its heads do not follow one
    another.
    """
    experiment = parse(
        BASE | {"privacy": {"accountant": "rdp"}, "budget": BASE["budget"] | {"rounds": 5}}
    )
    transport, terms = federation(tmp_path / "nodes", experiment)
    nodes, joined = tmp_path / "nodes", set()

    def snapshot() -> None:
        shutil.copytree(nodes / "node-1", tmp_path / "copy")
        joined.update(transport.services["node-1"]._state.history.joined_runs)

    def revert() -> None:
        with monkeypatch.context() as patch:
            patch.setattr("dpfl.privacy.ledger.ledger.Ledger.start", lambda ledger, least=0: None)
            restarted(transport, nodes, "node-1", tmp_path / "copy")
        transport.services["node-1"]._state.history.joined_runs.update(joined)

    at_round(transport, 1, snapshot)
    at_round(transport, 3, revert)
    result = experiment.serve(transport, terms, tmp_path / "run")
    assert [line.split(":")[0] for line in result.lost_replies] == ["round 5, client 1"], (
        "round 4 was made without rounds 2 and 3"
    )
    assert "reconcile" in result.lost_replies[0]
    transport.services.pop("node-1").close()
    assert CliRunner().invoke(app, ["ledger", "reconcile", str(nodes / "node-1")]).exit_code == 0
    assert sum(spent(nodes, ["node-1"])[0].values()) == 8, "rounds 1 to 4"


def as_before_heads(service: Service) -> list[str]:
    """A node of a version that signed no heads and refused words that it did not know; the kinds of
    letters that it refused.
    """
    answer, requests, refused = service.answer, service._state.requests, []
    write = requests.answer

    def answering(data: bytes) -> bytes:
        request = requests.read(data)
        if "heads" not in request.fields:
            return answer(data)
        refused.append(request.kind)
        return service._refuse(request, RefusalReason.BAD_WORDS)

    def writing(request, fields, arrays=None):
        old = {name: one for name, one in fields.items() if name not in ("ledger_head", "heads")}
        return write(request, old, arrays)

    service.answer, requests.answer = answering, writing  # type: ignore[method-assign]
    return refused


def test_a_node_of_an_earlier_version_works_beside_others_and_is_shown_no_heads(tmp_path) -> None:
    """Fault: it refused a second run, since its letter showed the heads of its neighbours."""
    experiment = parse(
        BASE
        | {
            "privacy": {"accountant": "rdp"},
            "budget": BASE["budget"] | {"rounds": 1, "epsilon": 2.0},
        }
    )
    transport, terms = federation(tmp_path / "nodes", experiment)
    terms = replace(terms, heads=tmp_path / "heads.json")
    refused = as_before_heads(transport.services["node-1"])
    for name in ("one", "two"):
        result = experiment.serve(transport, terms, tmp_path / name)
        assert not result.notes
        assert not result.lost_replies
    assert not refused
    assert sorted(json.loads((tmp_path / "heads.json").read_text())) == ["node-0", "node-2"]
    assert [
        sum(events.values()) for events in spent(tmp_path / "nodes", sorted(transport.services))
    ] == [4, 4, 4]


def test_a_node_that_signed_heads_and_was_given_an_earlier_version_takes_no_part(tmp_path) -> None:
    """It could not compare what it signed; that its letter is refused is on purpose."""
    experiment = parse(
        BASE
        | {
            "privacy": {"accountant": "rdp"},
            "budget": BASE["budget"] | {"rounds": 1, "epsilon": 2.0},
        }
    )
    transport, terms = federation(tmp_path / "nodes", experiment)
    terms = replace(terms, heads=tmp_path / "heads.json")
    experiment.serve(transport, terms, tmp_path / "one")
    assert not (refused := as_before_heads(transport.services["node-1"]))
    result = experiment.serve(transport, terms, tmp_path / "two")
    assert result.notes[0].startswith("node-1 takes no part: A field of the message")
    assert refused == ["join"]
    assert [
        sum(events.values()) for events in spent(tmp_path / "nodes", sorted(transport.services))
    ] == [4, 2, 4]


def test_a_server_of_an_earlier_version_loses_a_node_that_is_started_again_and_nothing_else(
    tmp_path, monkeypatch
) -> None:
    """It shows no heads, and does not ask a restarted node to join again."""
    experiment = parse(BASE | {"privacy": {"accountant": "rdp"}})
    transport, terms = federation(tmp_path / "nodes", experiment)
    monkeypatch.setattr("dpfl.engines.head_memory.HeadMemory.shown_to", lambda memory, name: [])
    monkeypatch.setattr(
        "dpfl.engines.head_memory.HeadMemory.is_doubtful", lambda memory, name: False
    )
    monkeypatch.setattr("dpfl.engines.remote.JOIN_AGAIN", "a reason that it does not know")
    at_round(transport, 1, lambda: restarted(transport, tmp_path / "nodes", "node-1"))
    result = experiment.serve(transport, terms, tmp_path / "run")
    assert result.rounds == 3
    assert [
        sum(events.values()) for events in spent(tmp_path / "nodes", sorted(transport.services))
    ] == [6, 2, 6]


def test_a_server_remembers_what_the_listed_key_signed_and_nothing_else(tmp_path) -> None:
    experiment = parse(
        BASE | {"privacy": {"accountant": "rdp"}, "budget": BASE["budget"] | {"rounds": 1}}
    )
    transport, terms = federation(tmp_path / "nodes", experiment)
    terms = replace(terms, heads=tmp_path / "heads.json")
    experiment.serve(transport, terms, tmp_path / "run")
    file = json.loads((tmp_path / "heads.json").read_text())
    assert sorted(file) == ["node-0", "node-1", "node-2"]
    public = dict(zip(terms.nodes, terms.public, strict=True))
    odd = {
        "node-0": file["node-1"],
        "node-1": [1, {}, file["node-1"][0]],
        "stranger": file["node-2"],
        "node-2": [],
    }
    (tmp_path / "heads.json").write_text(json.dumps(odd))
    memory = HeadMemory(public, tmp_path / "heads.json")
    assert [len(memory.of(name)) for name in public] == [0, 1, 0]
    memory.take(
        "node-0",
        SignedMessage(
            {"ledger_head": file["node-0"][0], "heads": [file["node-2"][0], 5, file["node-1"][0]]},
            {},
        ),
    )
    memory.save()
    written = json.loads((tmp_path / "heads.json").read_text())
    assert {name: len(heads) for name, heads in written.items()} == {
        "node-0": 1,
        "node-1": 1,
        "node-2": 1,
        "stranger": 1,
    }
    (tmp_path / "heads.json").write_text("[]")
    with pytest.raises(DpflError, match="does not contain ledger heads"):
        HeadMemory(public, tmp_path / "heads.json")
