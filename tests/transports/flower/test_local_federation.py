"""A whole federation of real processes: the events, sums and model of one program; a server that
lies, and what it is told.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from safetensors.torch import load_file

from dpfl.client.runner import ClientRunner
from dpfl.client.task import ClientReply, ClientTask
from dpfl.config.experiment import parse
from dpfl.privacy import Ledger
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.privacy.mechanisms.noises.secure_noise import SecureGaussian
from dpfl.protocol import secure_sum_messages, task_messages
from dpfl.protocol.keys import public_key_hex
from dpfl.protocol.proposal import Proposal
from dpfl.run.over_nodes.nodes import join_nodes
from dpfl.secagg import MaskedInput, SumId, SurvivorList
from tests.conftest import PATIENCE
from tests.transports.flower.whole import BASE, NODES, SECURE, Liar, Spoiled, Whole

pytestmark = pytest.mark.xdist_group("up")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    with pytest.MonkeyPatch.context() as patch, ExitStack() as until:
        patch.setenv("DPFL_TEST_KEYED_SEED", "5")
        patch.setenv("OMP_NUM_THREADS", "1")
        for patience in (
            "engines.node_channel.GRACE",
            "engines.secure_sum.GREETING",
            "transports.flower.local_federation.LEAVING_SECONDS",
        ):
            patch.setattr(f"dpfl.{patience}", PATIENCE)
        made = Whole(tmp_path_factory.mktemp("whole") / "up", until)
        yield made
        until.close()
        assert all(process.returncode == 0 for process in made.processes.values())


def spent(folder: Path) -> list[dict]:
    found = []
    for path in sorted(folder.rglob("*.sqlite")):
        if path.parent.name in ("ledger", "ledgers"):
            with closing(Ledger.read(path)) as ledger:
                found.append(dict(ledger.spending()))
    return found


def test_the_same_runs_over_real_nodes(
    whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First with updates; then with secure sums, where a node gets no order in the second round,
    another falls silent in the third when it has sent its numbers, and one alone is left in the
    last: the same sums, to the last bit, or none."""
    local = parse(BASE).run(tmp_path / "local", workers=1)
    remote = parse(BASE).serve(whole.transport(), whole.terms, tmp_path / "remote")
    assert remote.rounds == local.rounds == 2
    assert not remote.lost_replies
    assert spent(whole.folder / "nodes") == spent(tmp_path / "local") == spent(tmp_path / "remote")
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("local", "remote"))
    assert all(torch.allclose(one[name], other[name], atol=1e-5) for name in one)
    _secure(whole, tmp_path, monkeypatch)
    secrets = [
        path
        for path in whole.folder.rglob("*")
        if path.suffix in (".pem", ".key", ".secret") and path.is_file()
    ]
    assert len(secrets) >= 8
    assert all(os.stat(path).st_mode & 0o077 == 0 for path in secrets)


def _secure(whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = {"privacy": SECURE["privacy"] | {"ledger": str(tmp_path / "local" / "ledger")}}
    with monkeypatch.context() as patch:
        work = ClientRunner.work
        gone = {(1, 1), (1, 3), (2, 3)}

        def some(self: ClientRunner, task: ClientTask, *more: Any) -> ClientReply:
            return (
                ClientReply(task.client, failure="")
                if (task.client, task.round) in gone
                else work(self, task, *more)
            )

        patch.setattr(ClientRunner, "work", some)
        local = parse(SECURE | ledger).run(tmp_path / "simulated", workers=1)
    last = {("node-1", "work", "3"), ("node-2", "work", "3")}
    transport = Spoiled(
        whole.transport(),
        whole.terms,
        {("node-1", "work", "1"), ("node-2", "survivors", "2"), *last},
    )
    remote = parse(SECURE).serve(transport, whole.terms, tmp_path / "secure")
    assert remote.rounds == local.rounds == 4
    assert len(remote.lost_replies) == len(local.lost_replies) == 4
    assert any("1 clients are left of 2" in line for line in remote.lost_replies)
    assert spent(whole.folder / "nodes") == spent(tmp_path / "local")
    one, other = (
        load_file(tmp_path / name / "model.safetensors") for name in ("simulated", "secure")
    )
    assert all((one[name] == other[name]).all() for name in one)
    assert (
        "who see sums over at least 2 clients only"
        in remote.privacy.adversary
        == local.privacy.adversary
    )


def test_a_lying_server_is_told_why_and_learns_nothing(whole: Whole) -> None:
    """Members that it invents, updates by themselves, a round again, a set-up of before, both
    halves of a mask, survivors that are others for others, too few, or nobody: every node refuses
    by a fixed word, which is in its log, and pays for what it sent and for nothing else."""
    before, propose = (
        spent(whole.folder / "nodes"),
        parse(SECURE).proposal(NODES, whole.terms.public),
    )
    liar = Liar(join_nodes(whole.transport(), "0123456789abcdef", whole.terms, propose).channel)
    _proposes(liar, propose(0), whole.terms.public)
    here = _sets_up(liar)
    sent = _sums(liar, here)
    _opens(liar, here, sent)
    liar.mail.transport.close()
    paid = [
        sum(now.values()) - sum(old.values())
        for now, old in zip(spent(whole.folder / "nodes"), before, strict=True)
    ]
    assert paid == [1, 1, 1]
    log = "".join((whole.folder / "nodes" / name / "node.log").read_text() for name in NODES)
    said = [
        "unknown-member",
        "bad-keys",
        "unmasked",
        "order-changed",
        "set-up-past",
        "sum-over",
        "other-survivors",
    ]
    for reason in (*said, "too-few-votes"):
        assert f'"reason": "{reason}"' in log


def _proposes(liar: Liar, proposal: Proposal, keys: list[str]) -> None:
    stranger = public_key_hex(Ed25519PrivateKey.generate().public_key())
    proposed = {
        "invented": replace(proposal, federation=(*NODES, "node-3"), keys=(*keys, stranger)),
        "swapped": replace(proposal, keys=tuple(reversed(keys))),
        "few": replace(proposal, sums=NoiseShares(1)),
        "0123456789abcdef": replace(proposal, rounds=2),
    }
    messages = [
        (
            "node-0",
            replace(liar.mail, run=run).message(
                "node-0", "join", "join", {"proposal": one.to_words()}
            ),
        )
        for run, one in proposed.items()
    ]
    early = liar.work(liar.task("node-1"), "0" * 64)
    refusals = ["unknown-member", "unknown-member", "too-few-survivors", "wrong-run", "no-keys"]
    assert liar.told(*messages, early) == refusals


def _sets_up(liar: Liar) -> str:
    assert (
        liar.told(*(liar.message(name, "card", "set-up", {"number": 1}) for name in NODES))
        == ["card"] * 3
    )
    cards = [answer.header["card"] for answer in liar.answers]
    forged, invented = (
        [*cards[:2], cards[2] | {"mask": cards[1]["mask"]}],
        [*cards, cards[2] | {"name": "node-3"}],
    )
    alone = replace(liar.system.samples, noise_shares=None, noise=SecureGaussian(0.8))
    by_itself = liar.work(liar.task("node-2", samples=alone, secure_sum=None), "")
    shown = zip(NODES, (forged, invented, cards[2:]), strict=True)
    wrong = [liar.message(name, "meet", "wrong", {"cards": given}) for name, given in shown]
    assert liar.told(*wrong, by_itself) == ["bad-keys", "bad-keys", "too-few-survivors", "unmasked"]
    assert (
        liar.told(*(liar.message(name, "meet", "set-up", {"cards": cards}) for name in NODES))
        == ["met"] * 3
    )
    return str(liar.answers[0].header["session"])


def _sums(liar: Liar, here: str) -> dict[str, MaskedInput]:
    orders = [liar.work(liar.task(name, 1), here) for name in NODES]
    assert liar.told(*orders) == ["masked"] * 3
    first = [answer.arrays for answer in liar.answers]
    changed, older = (
        liar.work(liar.task("node-2", 1), here, model=0.1),
        liar.work(liar.task("node-2", 0), here),
    )
    bare = liar.work(liar.task("node-1", 2, secure_sum=None), here)
    assert liar.told(*orders, changed, older, bare) == [
        *["masked"] * 3,
        "order-changed",
        "sum-over",
        "uncovered",
    ]
    again = [answer.arrays for answer in liar.answers]
    assert all(
        (one["numbers"] == other["numbers"]).all() for one, other in zip(first, again, strict=False)
    )
    return {
        name: secure_sum_messages.input_from_arrays(one, _at(liar, here), name, NODES)
        for name, one in zip(NODES, first, strict=True)
    }


def _opens(liar: Liar, here: str, sent: dict[str, MaskedInput]) -> None:
    task_name = task_messages.task_name(liar.task("node-0", 1), here)

    def shown(to: str, *names: str) -> tuple[str, bytes]:
        envelopes = {
            name: sent.get(name, sent["node-0"]).envelopes[to] for name in names if name != to
        }
        return liar.message(
            to,
            "survivors",
            task_name,
            *secure_sum_messages.survivors_to_fields(
                SurvivorList(_at(liar, here), names, envelopes), 3
            ),
        )

    few, strange = (
        [shown("node-0", "node-0"), shown("node-1", "node-0", "node-2")],
        shown("node-2", *NODES[1:], "node-3"),
    )
    before = liar.message("node-2", "card", "before", {"number": 0})
    assert liar.told(*few, strange, before) == [
        "too-few-survivors",
        "bad-survivors",
        "bad-survivors",
        "set-up-past",
    ]
    lists = shown("node-0", *NODES), shown("node-1", *NODES[:2]), shown("node-2", *NODES[1:])
    assert liar.told(*lists) == ["opened", "vote", "vote"]
    votes = {
        "votes": {name: liar.answers[NODES.index(name)].header["signature"] for name in NODES[1:]}
    }
    second = [shown("node-0", *NODES[:2]), shown("node-1", *NODES)]
    asked = [liar.message(name, "votes", task_name, votes) for name in NODES]
    refusals = ["sum-over", "other-survivors", "sum-over", "too-few-votes", "too-few-votes"]
    assert liar.told(*second, *asked) == refusals


def _at(liar: Liar, here: str) -> SumId:
    return secure_sum_messages.sum_id_of(
        liar.task("node-0", 1), here, np.zeros(liar.size, np.float32)
    )
