"""The same experiment in one program and over nodes that guard their own data: the same events, the
same model.
"""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from dpfl.certificate import certify, verify
from dpfl.cli.app import app
from dpfl.config.experiment import parse
from dpfl.engines.head_memory import HeadMemory
from dpfl.errors import DpflError
from dpfl.node.service import Service
from dpfl.privacy import Ledger
from dpfl.protocol import keys
from dpfl.protocol.keys import new_key, raw
from dpfl.protocol.messages import SignedMessage
from dpfl.refusals import RefusalReason
from tests.loopback import federation
from tests.run.test_tables import content, write

BASE = {
    "seed": 3,
    "data": {"name": "mnist-sample", "partition": "iid", "clients": 3},
    "model": {"name": "mlp", "hidden": 8},
    "algorithm": {"name": "fedavg-dp", "tau": 2, "sampling_rate": 0.01},
    "budget": {"epsilon": 4.0, "delta": 1e-5, "rounds": 3},
    "privacy": {"entropy": "keyed", "accountant": "rdp"},
}


def spent(folder: Path, names) -> list[dict]:
    found = []
    for name in names:
        with closing(Ledger.read(next(folder.rglob(f"{name}.sqlite")))) as ledger:
            found.append(dict(ledger.spending()))
    return found


def test_the_same_events_and_the_same_model_as_in_one_program(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("DPFL_TEST_KEYED_SEED", "3")
    experiment = parse(BASE)
    local = experiment.run(tmp_path / "local", workers=1)
    post, terms = federation(
        tmp_path / "nodes", experiment, tell={"entropy": "keyed", "secure": False}
    )
    listed = {name: raw(key) for name, key in terms.nodes.items()}
    remote = parse(BASE | {"server": {"nodes": listed}}).serve(post, terms, tmp_path / "remote")
    assert remote.rounds == local.rounds == 3
    there = spent(tmp_path / "nodes", post.services)
    assert there == spent(tmp_path / "local", [f"client-{number:05d}" for number in range(3)])
    assert there == spent(tmp_path / "remote", post.services)
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("local", "remote"))
    assert all(torch.allclose(one[name], other[name], atol=1e-5) for name in one)
    assert remote.privacy.proven == pytest.approx(local.privacy.proven)
    statements = sorted((tmp_path / "remote" / "nodes").iterdir())
    assert [path.stem for path in statements] == sorted(post.services)
    assert any("its own signed statement" in fact for fact in remote.privacy.assumptions)
    _verify(tmp_path / "remote", statements)


def _verify(folder: Path, statements: list[Path]) -> None:
    """The server's certificate and the nodes' statements together; what was changed in one is
    found.
    """
    new_key(folder.parent / "key.pem")
    certificate = folder / "certificate.json"
    certificate.write_text(json.dumps(certify(folder, folder.parent / "key.pem")))
    verdict = verify(certificate, nodes=statements)
    assert not verdict.findings
    told = {check.name: check.outcome for check in verdict.checks}
    assert all("6 releases for this run" in told[path.stem] for path in statements)
    assert (
        "theirs alone"
        in {check.name: check.outcome for check in verify(certificate, data=True).checks}["data"]
    )
    changed = json.loads(statements[0].read_text())
    changed["statement"]["spent"] = 0.5
    forged = folder.parent / "forged.json"
    forged.write_text(json.dumps(changed))
    assert "not signed" in verify(certificate, nodes=[forged]).findings[0]
    key = keys.load_private(folder.parent / "nodes" / statements[0].stem / "node.pem")
    for odd, said in (
        ({"limit": "eight"}, ""),
        ({"delta": []}, ""),
        ({"proven": 0.0}, "proves less than was spent"),
    ):
        words = json.loads(statements[0].read_text())["statement"] | odd
        forged.write_text(json.dumps({"statement": words, "signature": keys.sign(words, key)}))
        assert said in verify(certificate, nodes=[forged]).findings[0]


def test_a_server_that_is_stopped_goes_on_without_a_second_release(tmp_path) -> None:
    experiment = parse(BASE | {"privacy": {"accountant": "rdp"}})
    post, terms = federation(tmp_path / "nodes", experiment)
    seen: list[bytes] = []
    send = post.send

    def failing(address: str, letter: bytes) -> str:
        """The server ends as it sends the orders of its second round, one of which went out; one of
        its first gets lost.
        """
        if b'"order":"0/train"' in letter and address == "node-2":
            post.services[address].answer(letter)
            return send("node-0", letter)
        if b'"order":"1/train"' in letter:
            if seen:
                raise KeyboardInterrupt
            seen.append(letter)
            post.services[address].answer(letter)
        return send(address, letter)

    post.send = failing  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        experiment.serve(post, terms, tmp_path / "run")
    post.send, post.sent = send, []  # type: ignore[method-assign]
    result = experiment.serve(post, terms, tmp_path / "run", resume=True)
    assert result.rounds == 3
    assert [line.split(":")[0] for line in result.lost_replies] == ["round 1, client 2"], (
        "what was lost before is said, too"
    )
    assert [sum(events.values()) for events in spent(tmp_path / "nodes", post.services)] == [
        6,
        6,
        6,
    ]
    assert [sum(events.values()) for events in spent(tmp_path / "run", post.services)] == [6, 6, 6]


def restarted(post, folder: Path, name: str, copy: Path | None = None) -> None:
    """The node of a name is started again, with its folder as a copy has it where one is given."""
    post.services.pop(name).close()
    if copy:
        shutil.rmtree(folder / name)
        shutil.copytree(copy, folder / name)
    post.services[name] = Service.open(folder / name / "policy.toml")


def at_round(post, number: int, what) -> None:
    """Done once, as the first order of a round is sent."""
    send, done = post.send, []

    def sending(address: str, letter: bytes) -> str:
        if f'"order":"{number}/train"'.encode() in letter and not done:
            done.append(number)
            what()
        return send(address, letter)

    post.send = sending


def test_a_node_that_is_started_again_in_a_run_joins_again_and_loses_nothing(tmp_path) -> None:
    experiment = parse(BASE | {"privacy": {"accountant": "rdp"}})
    post, terms = federation(tmp_path / "nodes", experiment)
    at_round(post, 1, lambda: restarted(post, tmp_path / "nodes", "node-1"))
    result = experiment.serve(post, terms, tmp_path / "run")
    assert not result.lost_replies
    assert [sum(events.values()) for events in spent(tmp_path / "nodes", post.services)] == [
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
    post, terms = federation(tmp_path / "nodes", experiment)
    at_round(post, 1, lambda: shutil.copytree(tmp_path / "nodes" / "node-1", tmp_path / "copy"))
    at_round(post, 2, lambda: restarted(post, tmp_path / "nodes", "node-1", tmp_path / "copy"))
    result = experiment.serve(post, terms, tmp_path / "run")
    assert len(result.lost_replies) == 1
    assert "reconcile" in result.lost_replies[0]
    assert [
        sum(events.values()) for events in spent(tmp_path / "nodes", sorted(post.services))
    ] == [6, 2, 6]
    post.services.pop("node-1").close()
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
    post, terms = federation(tmp_path / "nodes", experiment)
    terms = replace(terms, heads=tmp_path / "heads.json")
    shutil.copytree(tmp_path / "nodes" / "node-1", tmp_path / "copy")
    experiment.serve(post, terms, tmp_path / "one")
    if forgets:
        (tmp_path / "heads.json").unlink()
    restarted(post, tmp_path / "nodes", "node-1", tmp_path / "copy")
    result = experiment.serve(post, terms, tmp_path / "two")
    assert result.notes[0].startswith(
        "node-1 takes no part: The node's ledger lacks releases that the node signed"
    )
    assert [
        sum(events.values()) for events in spent(tmp_path / "nodes", sorted(post.services))
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
    post, terms = federation(tmp_path / "nodes", experiment)
    nodes, joined = tmp_path / "nodes", set()

    def snapshot() -> None:
        shutil.copytree(nodes / "node-1", tmp_path / "copy")
        joined.update(post.services["node-1"]._state.history.joined)

    def revert() -> None:
        with monkeypatch.context() as patch:
            patch.setattr("dpfl.privacy.ledger.ledger.Ledger.start", lambda ledger, least=0: None)
            restarted(post, nodes, "node-1", tmp_path / "copy")
        post.services["node-1"]._state.history.joined.update(joined)

    at_round(post, 1, snapshot)
    at_round(post, 3, revert)
    result = experiment.serve(post, terms, tmp_path / "run")
    assert [line.split(":")[0] for line in result.lost_replies] == ["round 5, client 1"], (
        "round 4 was made without rounds 2 and 3"
    )
    assert "reconcile" in result.lost_replies[0]
    post.services.pop("node-1").close()
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
    post, terms = federation(tmp_path / "nodes", experiment)
    terms = replace(terms, heads=tmp_path / "heads.json")
    refused = as_before_heads(post.services["node-1"])
    for name in ("one", "two"):
        result = experiment.serve(post, terms, tmp_path / name)
        assert not result.notes
        assert not result.lost_replies
    assert not refused
    assert sorted(json.loads((tmp_path / "heads.json").read_text())) == ["node-0", "node-2"]
    assert [
        sum(events.values()) for events in spent(tmp_path / "nodes", sorted(post.services))
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
    post, terms = federation(tmp_path / "nodes", experiment)
    terms = replace(terms, heads=tmp_path / "heads.json")
    experiment.serve(post, terms, tmp_path / "one")
    assert not (refused := as_before_heads(post.services["node-1"]))
    result = experiment.serve(post, terms, tmp_path / "two")
    assert result.notes[0].startswith("node-1 takes no part: A field of the letter")
    assert refused == ["join"]
    assert [
        sum(events.values()) for events in spent(tmp_path / "nodes", sorted(post.services))
    ] == [4, 2, 4]


def test_a_server_of_an_earlier_version_loses_a_node_that_is_started_again_and_nothing_else(
    tmp_path, monkeypatch
) -> None:
    """It shows no heads, and does not ask a restarted node to join again."""
    experiment = parse(BASE | {"privacy": {"accountant": "rdp"}})
    post, terms = federation(tmp_path / "nodes", experiment)
    monkeypatch.setattr("dpfl.engines.head_memory.HeadMemory.shown_to", lambda memory, name: [])
    monkeypatch.setattr(
        "dpfl.engines.head_memory.HeadMemory.is_doubtful", lambda memory, name: False
    )
    monkeypatch.setattr("dpfl.engines.remote.JOIN_AGAIN", "a reason that it does not know")
    at_round(post, 1, lambda: restarted(post, tmp_path / "nodes", "node-1"))
    result = experiment.serve(post, terms, tmp_path / "run")
    assert result.rounds == 3
    assert [
        sum(events.values()) for events in spent(tmp_path / "nodes", sorted(post.services))
    ] == [6, 2, 6]


def test_a_server_remembers_what_the_listed_key_signed_and_nothing_else(tmp_path) -> None:
    experiment = parse(
        BASE | {"privacy": {"accountant": "rdp"}, "budget": BASE["budget"] | {"rounds": 1}}
    )
    post, terms = federation(tmp_path / "nodes", experiment)
    terms = replace(terms, heads=tmp_path / "heads.json")
    experiment.serve(post, terms, tmp_path / "run")
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
    with pytest.raises(DpflError, match="does not hold heads"):
        HeadMemory(public, tmp_path / "heads.json")


def test_the_run_goes_on_without_a_node_that_refuses(tmp_path) -> None:
    experiment = parse(BASE | {"privacy": {"accountant": "rdp"}})
    post, terms = federation(tmp_path / "nodes", experiment)
    name = next(iter(post.services))
    policy = tmp_path / "nodes" / name / "policy.toml"
    post.services.pop(name).close()
    policy.write_text(policy.read_text().replace("epsilon = 8.0", "epsilon = 0.01"))
    post.services[name] = Service.open(policy)
    result = experiment.serve(post, terms, tmp_path / "run")
    assert result.rounds == 3
    assert result.notes[0].startswith(f"{name} takes no part")
    assert spent(tmp_path / "nodes", [name]) == [{}]


def test_where_too_few_join_the_reasons_are_said_and_nothing_is_written(tmp_path) -> None:
    experiment = parse(BASE | {"privacy": {"accountant": "rdp"}})
    post, terms = federation(tmp_path / "nodes", experiment, limits={"epsilon": 0.01})
    with pytest.raises(DpflError, match=r"0 of 3 nodes joined, .* node-0: .*budget"):
        experiment.serve(post, terms, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_noise_that_every_node_would_have_to_add_is_refused() -> None:
    """A node that lies adds none, and the guarantee of all others would be less than is said."""
    shared = {
        "algorithm": {"name": "dp-fedavg", "cohort": 2, "noise": "clients"},
        "privacy": {"noise": "plain"},
    }
    with pytest.raises(DpflError, match="every node adds its share"):
        parse(BASE | shared).proposal(("a", "b", "c"))


def test_more_kinds_of_releases_than_a_node_plans_are_refused(monkeypatch) -> None:
    monkeypatch.setattr("dpfl.run.propose.MOST_KINDS", 2)
    phases = {
        "algorithm": {"name": "dyn-dp-sgd", "phases": 3, "noise_multiplier": 2.0},
        "privacy": {"accountant": "rdp"},
    }
    with pytest.raises(DpflError, match="and this has 3"):
        parse(BASE | phases).proposal(("a", "b", "c"))


def test_persons_are_the_unit_at_nodes_too(tmp_path) -> None:
    """Six sites of a study: sizes are declared in persons, and every ledger says whom it counts
    for.
    """
    experiment = parse(
        {
            "data": {"name": "randhie"},
            "model": {"name": "linear"},
            "algorithm": {"name": "fedavg-dp", "tau": 1, "sampling_rate": 0.05},
            "budget": {"epsilon": 1.0, "delta": 1e-5, "rounds": 1},
            "privacy": {"unit": "person", "accountant": "rdp"},
        }
    )
    post, terms = federation(
        tmp_path / "nodes", experiment, limits={"unit": "person"}, allow={"models": ["linear"]}
    )
    result = experiment.serve(post, terms, tmp_path / "run")
    assert result.rounds == 1
    assert result.privacy.unit == "person"
    declared = json.loads((tmp_path / "run" / "nodes.json").read_text())
    assert [one["size"] for one in declared.values()] == list(
        experiment.federation().count_units("person")
    )
    told = json.loads(next((tmp_path / "run" / "nodes").iterdir()).read_text())["statement"]
    assert told["unit"] == "person"
    rows = federation(tmp_path / "others", experiment, allow={"models": ["linear"]})
    with pytest.raises(DpflError, match="another unit"):
        experiment.serve(*rows, tmp_path / "refused")


def test_scales_and_metrics_are_paid_for_by_nodes(tmp_path) -> None:
    """A table of two sites, nothing of it public: the scale of a column before the first round, a
    metric after the last.
    """
    columns = {
        "age": {"low": 0, "high": 200, "scale": "paid"},
        "sex": {"levels": ["f", "m"], "other": True},
    }
    said = content(
        write(tmp_path / "stays.csv", 600), columns=columns, paid={"noise": 4.0}, test=None
    )
    said |= {"algorithm": {"name": "fedavg-dp", "tau": 1}, "budget": {"epsilon": 2.0, "rounds": 2}}
    said |= {"metrics": {"private": True, "held_out": 0.0}}
    experiment = parse(said)
    post, terms = federation(
        tmp_path / "nodes", experiment, allow={"models": [experiment.model.name]}
    )
    result = experiment.serve(post, terms, tmp_path / "run")
    assert result.headline == "AUC"
    assert "with noise" in result.noisy
    assert [sum(events.values()) for events in spent(tmp_path / "nodes", post.services)] == [4, 4]
    assert spent(tmp_path / "nodes", post.services) == spent(tmp_path / "run", post.services)
    assert result.privacy.proven <= 2.0
    with pytest.raises(DpflError, match="held_out"):
        parse(said | {"metrics": {"private": True}}).serve(post, terms, tmp_path / "other")


def test_an_answer_may_be_as_long_as_the_model_needs_and_no_longer(tmp_path) -> None:
    experiment = parse(
        BASE | {"privacy": {"accountant": "rdp"}, "budget": BASE["budget"] | {"rounds": 1}}
    )
    post, terms = federation(tmp_path / "nodes", experiment)
    first = post.services["node-0"]
    answer = first.answer
    first.answer = lambda letter: (
        answer(letter) if b'"kind":"work"' not in letter else bytes(1 << 25)
    )  # type: ignore[method-assign]
    result = experiment.serve(post, terms, tmp_path / "run")
    assert post.most == (1 << 24) + 16 * sum(
        weights.numel() for weights in result.module.parameters()
    )
    assert [line for line in result.lost_replies if "client 0" in line and "larger" in line]
