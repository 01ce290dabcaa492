"""Secure sums over nodes that guard their own data: the sums of a simulation to the last bit;
drop-outs; what is paid twice.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

from dpfl.certificate import certify, verify
from dpfl.config.experiment import Experiment, parse
from dpfl.engines.secure_sum import SecureSumServer
from dpfl.errors import DpflError
from dpfl.node.service import Service
from dpfl.privacy.mechanisms.noises.integer_sum import IntegerSum
from dpfl.protocol import messages, secure_sum_messages
from dpfl.protocol.keys import new_key, public_key_hex
from dpfl.protocol.transport import Delivery
from dpfl.run.over_nodes.nodes import ServerTerms
from dpfl.secagg import MaskedInput
from tests.conftest import Clock
from tests.loopback import Loopback, federation
from tests.run.over_nodes.test_nodes import spent
from tests.run.test_tables import content, write

NODES = [f"node-{number}" for number in range(4)]
CLIENTS = [f"client-{number:05d}" for number in range(4)]
BASE: dict[str, Any] = {
    "seed": 3,
    "data": {"name": "mnist-sample", "partition": "iid", "clients": 4},
    "model": {"name": "mlp", "hidden": 4},
    "algorithm": {"name": "fedavg-dp", "tau": 1, "sampling_rate": 0.01, "noise_multiplier": 1.0},
    "budget": {"epsilon": 8.0, "delta": 1e-5, "rounds": 3},
    "privacy": {"accountant": "rdp", "aggregation": "secure", "survivors": 3, "colluders": 1},
}
Drop = Callable[[str, Mapping[str, Any]], bool]


class Leaky(Loopback):
    """Letters that are to be dropped reach nobody; what came of the others is counted. Time passes
    where nothing comes.
    """

    drop: Drop = staticmethod(lambda name, head: False)

    def __init__(self, services: Mapping[str, Service], owner: Any) -> None:
        super().__init__(services)
        self.owner, self.kinds, self.cards = (
            owner,
            defaultdict[str, list[str]](list),
            dict[str, bytes](),
        )
        self.clock = Clock()

    def send(self, address: str, message: bytes) -> str:
        head = messages.read(message, self.owner, 1 << 24).header
        request_id = super().send(address, message)
        if self.drop(address, head):
            self.sent.pop()
        else:
            self.kinds[address].append(head["kind"])
        if head["kind"] == "card":
            self.cards.setdefault(address, message)
        return request_id

    def receive(self, seconds: float) -> list[Delivery]:
        if not self.sent:
            self.clock.sleep(seconds)
        return super().receive(seconds)


Made = Callable[..., tuple[Experiment, Leaky, ServerTerms]]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    """Federations whose server goes by the clock of their post."""

    def made(*given: Any, **changed: Any) -> tuple[Experiment, Leaky, ServerTerms]:
        experiment, transport, terms = _made(*given, **changed)
        monkeypatch.setattr("dpfl.engines.node_channel.time", transport.clock)
        return experiment, transport, terms

    return made


def _made(
    folder: Path, said: Mapping[str, Any] = BASE, **changed: Any
) -> tuple[Experiment, Leaky, ServerTerms]:
    experiment = parse(said)
    transport, terms = federation(folder / "nodes", experiment, 4, **{"secure": {}, **changed})
    return (
        experiment,
        Leaky(transport.services, terms.key.public_key()),
        replace(terms, deadline=30.0),
    )


@pytest.fixture
def summed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[np.ndarray], np.ndarray]]:
    """Of every sum that was opened: what nodes made for it before any mask, and what came out."""
    found: list[tuple[list[np.ndarray], np.ndarray]] = []
    numbers, add, own = IntegerSum.numbers, SecureSumServer.add, list[np.ndarray]()

    def seen(self: IntegerSum, *given: Any) -> np.ndarray:
        own.append(numbers(self, *given))
        return own[-1].copy()

    def added(self: SecureSumServer, sent: Mapping[str, np.ndarray]) -> np.ndarray:
        assert not any((one == other).mean() > 0.01 for one in own for other in sent.values())
        mine = [one.copy() for one in own]
        own.clear()
        found.append((mine, add(self, sent)))
        return found[-1][1]

    monkeypatch.setattr(IntegerSum, "numbers", seen)
    monkeypatch.setattr(SecureSumServer, "add", added)
    return found


def exact(one: tuple[list[np.ndarray], np.ndarray]) -> bool:
    made, total = one
    return bool((np.sum(made, axis=0, dtype=total.dtype) == total).all())


SYSTEMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "steps": ({}, {}),
    "clients": (
        {"name": "dp-fedavg", "cohort": 2, "tau": 2, "noise_multiplier": 2.0},
        {"limits": {"unit": "client"}},
    ),
    "planned": ({"name": "fedavg-dp", "tau": 1, "sampling_rate": 0.01}, {}),
}


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_same_sums_events_and_model_as_in_a_simulation(
    made: Made, tmp_path: Path, monkeypatch, summed, system: str
) -> None:
    algorithm, changed = SYSTEMS[system]
    said = BASE | {
        "privacy": BASE["privacy"] | {"entropy": "keyed"},
        "algorithm": algorithm or BASE["algorithm"],
    }
    monkeypatch.setenv("DPFL_TEST_KEYED_SEED", "3")
    local = parse(said).run(tmp_path / "local", workers=1)
    simulated = len(summed)
    _, transport, terms = made(tmp_path, said, tell={"entropy": "keyed"}, **changed)
    listed = parse(
        said
        | {"server": {"nodes": {name: public_key_hex(key) for name, key in terms.nodes.items()}}}
    )
    remote = listed.serve(transport, terms, tmp_path / "run")
    assert remote.rounds == local.rounds == 3
    assert not remote.lost_replies
    assert simulated == 0
    assert len(summed) == 3
    assert (
        spent(tmp_path / "nodes", NODES)
        == spent(tmp_path / "local", CLIENTS)
        == spent(tmp_path / "run", NODES)
    )
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("local", "run"))
    assert all((one[name] == other[name]).all() for name in one)
    assert remote.privacy.proven == local.privacy.proven
    assert remote.privacy.adversary == local.privacy.adversary
    assert (
        "up to 1 clients together, who see sums over at least 3 clients only"
        in remote.privacy.adversary
    )
    assert transport.kinds["node-1"].count("card") == transport.kinds["node-1"].count("meet") == 1
    assert (
        transport.kinds["node-1"].count("votes") == 0
    )  # nobody was missing: two exchanges a round
    if system == "steps":
        _verify(tmp_path / "run")


def _verify(folder: Path) -> None:
    """Certificate, statements and what `dpfl verify` says name the adversary."""
    new_key(folder.parent / "key.pem")
    certificate = folder / "certificate.json"
    certificate.write_text(json.dumps(certify(folder, folder.parent / "key.pem")))
    verdict = verify(certificate, nodes=sorted((folder / "nodes").iterdir()))
    assert not verdict.findings
    told = {check.name: check.outcome for check in verdict.checks}
    words = "up to 1 clients together, who see sums over at least 3 clients only"
    assert words in json.loads(certificate.read_text())["certificate"]["guarantee"]["adversary"]
    assert all(
        words
        in json.loads((folder / "nodes" / f"{name}.json").read_text())["statement"]["adversary"]
        for name in NODES
    )
    assert all(words in told[name] for name in NODES)
    assert all("3 releases for this run" in told[name] for name in NODES)


def test_who_drops_out_before_or_after_masking_is_missing_or_counted(
    made: Made, tmp_path: Path, summed
) -> None:
    """In round 2 a node gets no order, in round 3 one sends its numbers and then falls silent: the
    exact sum of those who sent is opened, and who was missing is back when it answers."""
    experiment, transport, terms = made(tmp_path, BASE | {"budget": BASE["budget"] | {"rounds": 5}})

    def drop(name: str, head: Mapping[str, Any]) -> bool:
        round = str(head["order"]).split("/")[0]
        return (name, head["kind"], round) in {
            ("node-1", "work", "1"),
            ("node-2", "survivors", "3"),
        }

    transport.drop = drop  # type: ignore[method-assign]
    result = experiment.serve(transport, terms, tmp_path / "run")
    assert result.rounds == 5
    assert [len(own) for own, _ in summed] == [4, 3, 4, 4, 4]
    assert all(map(exact, summed))
    assert len(result.lost_replies) == 1
    assert [sum(events.values()) for events in spent(tmp_path / "nodes", NODES)] == [5, 4, 5, 5]
    assert transport.kinds["node-0"].count("votes") == 1


def test_a_node_that_is_started_again_is_missing_for_a_round_and_gets_new_keys(
    made: Made, tmp_path: Path, summed
) -> None:
    """Whoever carries letters brings that of the first set-up again before every other, which
    changes nothing.
    """
    experiment, transport, terms = made(tmp_path)
    sessions = set()

    def restart(name: str, head: Mapping[str, Any]) -> bool:
        sessions.add(str(head["order"]).split("/")[-1] if head["kind"] == "work" else "")
        if (name, head["kind"], str(head["order"])[:2]) == ("node-3", "work", "1/"):
            transport.services[name].close()
            transport.services[name] = Service.open(tmp_path / "nodes" / name / "policy.toml")
        if name in transport.cards:
            transport.services[name].answer(transport.cards[name])
        return False

    transport.drop = restart  # type: ignore[method-assign]
    result = experiment.serve(transport, terms, tmp_path / "run")
    assert result.rounds == 3
    assert [len(own) for own, _ in summed] == [4, 3, 4]
    assert all(map(exact, summed))
    assert "no keys for this sum" in result.lost_replies[0]
    assert len(sessions - {""}) == 2
    assert [sum(events.values()) for events in spent(tmp_path / "nodes", NODES)] == [3, 3, 3, 2]


def test_too_few_survivors_open_nothing_and_too_few_nodes_end_the_run(
    made: Made, tmp_path: Path, monkeypatch, summed
) -> None:
    """Two of four fall silent in round 2: it was paid for, moves nothing and counts; before round 3
    nobody is asked to pay, and the run goes on when they are back."""
    experiment, transport, terms = made(tmp_path)
    silent = {"node-1", "node-2"}

    def drop(name: str, head: Mapping[str, Any]) -> bool:
        return name in silent and (
            (head["kind"] == "work" and head["order"][0] != "0") or head["order"] == "greeting"
        )

    transport.drop = drop  # type: ignore[method-assign]
    with pytest.raises(DpflError, match="Only 2 of 4 nodes are available, and a sum needs 3"):
        experiment.serve(transport, terms, tmp_path / "run")
    assert len(summed) == 1
    assert [sum(events.values()) for events in spent(tmp_path / "nodes", NODES)] == [2, 1, 1, 2]
    silent.clear()
    with monkeypatch.context() as patch:
        patch.setattr("dpfl.engines.secure_sum.time.time_ns", lambda: 10**18)
        with pytest.raises(DpflError, match="the server's clock was set back"):
            experiment.serve(transport, terms, tmp_path / "run", resume=True)
    result = experiment.serve(transport, terms, tmp_path / "run", resume=True)
    assert result.rounds == 3
    assert len(summed) == 2
    assert (
        any("2 clients are left of 3" in line for line in result.lost_replies)
        or result.lost_replies == ()
    )
    assert [sum(events.values()) for events in spent(tmp_path / "nodes", NODES)] == [3, 2, 2, 3]


def test_a_server_that_ends_between_two_exchanges_starts_that_round_anew_and_it_is_paid_for_again(
    made: Made, tmp_path: Path, monkeypatch, summed
) -> None:
    experiment, transport, terms = made(
        tmp_path,
        BASE | {"budget": {"delta": 1e-5, "epsilon": 20.0, "rounds": 2}},
        limits={"epsilon": 30.0},
    )
    add, calls = SecureSumServer.add, []

    def stops(self: SecureSumServer, sent: Mapping[str, np.ndarray]) -> np.ndarray:
        calls.append({name: one.copy() for name, one in sent.items()})
        if len(calls) == 1:
            raise KeyboardInterrupt
        return add(self, sent)

    monkeypatch.setattr(SecureSumServer, "add", stops)
    with pytest.raises(KeyboardInterrupt):
        experiment.serve(transport, terms, tmp_path / "run")
    result = experiment.serve(transport, terms, tmp_path / "run", resume=True)
    assert [sum(events.values()) for events in spent(tmp_path / "nodes", NODES)] == [2, 2, 2, 2]
    assert (
        result.rounds == 2
    )  # of which the last was not paid for: two were planned, and two were sent
    assert all(
        "does not contain this release" in line or "0 clients are left" in line
        for line in result.lost_replies
    )
    first, again = calls
    assert all((first[name] == again[name]).mean() < 0.01 for name in first)


def test_all_who_are_listed_must_join_and_the_reasons_are_said(made: Made, tmp_path: Path) -> None:
    experiment, transport, terms = made(tmp_path)
    policy = tmp_path / "nodes" / "node-2" / "policy.toml"
    transport.services.pop("node-2").close()
    policy.write_text(
        policy.read_text().replace(
            "[secure.members]", "[secure]\nleast_survivors = 4\n[secure.members]"
        )
    )
    transport.services["node-2"] = Service.open(policy)
    with pytest.raises(DpflError, match="node-2: The run would open a sum over fewer clients"):
        experiment.serve(transport, terms, tmp_path / "run")
    assert spent(tmp_path / "nodes", NODES) == [{}] * 4


def test_an_answer_that_is_not_opened_costs_the_answer_and_not_the_run(
    made: Made, tmp_path: Path, summed
) -> None:
    """Two send their part of a column's scale, and of the metric, and fall silent."""
    columns = {
        "age": {"low": 0, "high": 200, "scale": "paid"},
        "sex": {"levels": ["f", "m"], "other": True},
    }
    sites = {"sites": ["a", "b", "c"], "columns": columns, "paid": {"noise": 4.0}, "test": None}
    said = content(write(tmp_path / "stays.csv", 600, sites="abc"), **sites)
    said |= {"privacy": BASE["privacy"], "budget": {"epsilon": 8.0, "delta": 1e-5, "rounds": 2}}
    said |= {"metrics": {"private": True, "held_out": 0.0}}
    experiment, transport, terms = made(tmp_path, said, allow={"models": [said["model"]["name"]]})
    transport.drop = lambda name, head: (  # type: ignore[method-assign]
        name != "a" and head["kind"] == "survivors" and "/train" not in head["order"]
    )
    result = experiment.serve(transport, terms, tmp_path / "run")
    assert result.rounds == 2
    assert len(summed) == 2
    assert [line.split(",")[0] for line in result.lost_replies] == [
        f"{when}: Only 1 clients opened their shares"
        for when in ("before round 1", "after the last round")
    ]
    assert [sum(events.values()) for events in spent(tmp_path / "nodes", "abc")] == [4] * 3


def test_a_node_that_spoils_every_sum_does_not_spend_everybodys_budget(
    made: Made, tmp_path: Path, monkeypatch
) -> None:
    """Its digests are of other seeds than it used, so that no mask of it is ever found: after three
    rounds nobody pays more.
    """
    experiment, transport, terms = made(tmp_path, BASE | {"budget": BASE["budget"] | {"rounds": 9}})
    arrays = secure_sum_messages.input_to_arrays

    def spoiled(masked: MaskedInput) -> dict[str, np.ndarray]:
        found = arrays(masked)
        return found | (
            {"digests": found["digests"][::-1].copy()} if masked.sender == "node-2" else {}
        )

    monkeypatch.setattr(secure_sum_messages, "input_to_arrays", spoiled)
    with pytest.raises(DpflError, match="3 sums in a row could not be opened"):
        experiment.serve(transport, terms, tmp_path / "run")
    assert [sum(events.values()) for events in spent(tmp_path / "nodes", NODES)] == [3] * 4
