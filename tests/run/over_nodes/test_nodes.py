"""The same experiment in one program and over nodes that guard their own data: the same events, the
same model.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from dpfl.certificate import certify, verify
from dpfl.config.experiment import parse
from dpfl.errors import DpflError
from dpfl.node.service import Service
from dpfl.protocol import keys
from dpfl.protocol.keys import new_key, public_key_hex
from tests.loopback import federation
from tests.run.loopback_runs import BASE, spent
from tests.run.test_tables import content, write


def test_the_same_events_and_the_same_model_as_in_one_program(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("DPFL_TEST_KEYED_SEED", "3")
    experiment = parse(BASE)
    local = experiment.run(tmp_path / "local", workers=1)
    transport, terms = federation(
        tmp_path / "nodes", experiment, tell={"entropy": "keyed", "secure": False}
    )
    listed = {name: public_key_hex(key) for name, key in terms.nodes.items()}
    remote = parse(BASE | {"server": {"nodes": listed}}).serve(
        transport, terms, tmp_path / "remote"
    )
    assert remote.rounds == local.rounds == 3
    there = spent(tmp_path / "nodes", transport.services)
    assert there == spent(tmp_path / "local", [f"client-{number:05d}" for number in range(3)])
    assert there == spent(tmp_path / "remote", transport.services)
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("local", "remote"))
    assert all(torch.allclose(one[name], other[name], atol=1e-5) for name in one)
    assert remote.privacy.proven == pytest.approx(local.privacy.proven)
    statements = sorted((tmp_path / "remote" / "nodes").iterdir())
    assert [path.stem for path in statements] == sorted(transport.services)
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
        "only at the nodes"
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
    transport, terms = federation(tmp_path / "nodes", experiment)
    seen: list[bytes] = []
    send = transport.send

    def failing(address: str, message: bytes) -> str:
        """The server ends as it sends the orders of its second round, one of which went out; one of
        its first gets lost.
        """
        if b'"order":"0/train"' in message and address == "node-2":
            transport.services[address].answer(message)
            return send("node-0", message)
        if b'"order":"1/train"' in message:
            if seen:
                raise KeyboardInterrupt
            seen.append(message)
            transport.services[address].answer(message)
        return send(address, message)

    transport.send = failing  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        experiment.serve(transport, terms, tmp_path / "run")
    transport.send, transport.sent = send, []  # type: ignore[method-assign]
    result = experiment.serve(transport, terms, tmp_path / "run", resume=True)
    assert result.rounds == 3
    assert [line.split(":")[0] for line in result.lost_replies] == ["round 1, client 2"], (
        "what was lost before is said, too"
    )
    assert [sum(events.values()) for events in spent(tmp_path / "nodes", transport.services)] == [
        6,
        6,
        6,
    ]
    assert [sum(events.values()) for events in spent(tmp_path / "run", transport.services)] == [
        6,
        6,
        6,
    ]


def test_the_run_goes_on_without_a_node_that_refuses(tmp_path) -> None:
    experiment = parse(BASE | {"privacy": {"accountant": "rdp"}})
    transport, terms = federation(tmp_path / "nodes", experiment)
    name = next(iter(transport.services))
    policy = tmp_path / "nodes" / name / "policy.toml"
    transport.services.pop(name).close()
    policy.write_text(policy.read_text().replace("epsilon = 8.0", "epsilon = 0.01"))
    transport.services[name] = Service.open(policy)
    result = experiment.serve(transport, terms, tmp_path / "run")
    assert result.rounds == 3
    assert result.notes[0].startswith(f"{name} takes no part")
    assert spent(tmp_path / "nodes", [name]) == [{}]


def test_where_too_few_join_the_reasons_are_said_and_nothing_is_written(tmp_path) -> None:
    experiment = parse(BASE | {"privacy": {"accountant": "rdp"}})
    transport, terms = federation(tmp_path / "nodes", experiment, limits={"epsilon": 0.01})
    with pytest.raises(DpflError, match=r"0 of 3 nodes joined, .* node-0: .*budget"):
        experiment.serve(transport, terms, tmp_path / "run")
    assert not (tmp_path / "run").exists()


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
    transport, terms = federation(
        tmp_path / "nodes", experiment, limits={"unit": "person"}, allow={"models": ["linear"]}
    )
    result = experiment.serve(transport, terms, tmp_path / "run")
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
    transport, terms = federation(
        tmp_path / "nodes", experiment, allow={"models": [experiment.model.name]}
    )
    result = experiment.serve(transport, terms, tmp_path / "run")
    assert result.headline == "AUC"
    assert "with noise" in result.noisy
    assert [sum(events.values()) for events in spent(tmp_path / "nodes", transport.services)] == [
        4,
        4,
    ]
    assert spent(tmp_path / "nodes", transport.services) == spent(
        tmp_path / "run", transport.services
    )
    assert result.privacy.proven <= 2.0
    with pytest.raises(DpflError, match="held_out"):
        parse(said | {"metrics": {"private": True}}).serve(transport, terms, tmp_path / "other")


def test_an_answer_may_be_as_long_as_the_model_needs_and_no_longer(tmp_path) -> None:
    experiment = parse(
        BASE | {"privacy": {"accountant": "rdp"}, "budget": BASE["budget"] | {"rounds": 1}}
    )
    transport, terms = federation(tmp_path / "nodes", experiment)
    first = transport.services["node-0"]
    answer = first.answer
    first.answer = lambda message: (
        answer(message) if b'"kind":"work"' not in message else bytes(1 << 25)
    )  # type: ignore[method-assign]
    result = experiment.serve(transport, terms, tmp_path / "run")
    assert transport.most == (1 << 24) + 16 * sum(
        weights.numel() for weights in result.module.parameters()
    )
    assert [line for line in result.lost_replies if "client 0" in line and "larger" in line]
