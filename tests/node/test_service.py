"""A node and a server that it does not trust: what is agreed is done once and paid for; anything
else is refused by one word, and nothing is released, debited or planned for it."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest
import torch

from dpfl.errors import DpflError
from dpfl.node.service import Service
from dpfl.node.statement import check
from dpfl.privacy import accountant
from dpfl.privacy.queries.histogram import LabelQuery
from dpfl.privacy.queries.metric import MetricQuery
from dpfl.protocol import messages, task_messages
from tests.node.loopback import (
    EVENT,
    OWNER,
    PROPOSAL,
    ROUNDS,
    RUN,
    SAMPLES,
    SIZE,
    STEPS,
    TASK,
    Asked,
    Open,
    ask,
    join,
    round_of,
    vector,
    work,
)  # fmt: skip


def unmoved(node: Asked, message: bytes, reason: str) -> None:
    """Refused by this word, in the log; and nothing else happened."""
    before, replies = node.rows(), sorted((node.folder / "replies").iterdir())
    assert node.refused(message) == reason
    assert node.rows() == before
    assert sorted((node.folder / "replies").iterdir()) == replies
    assert json.loads(node.log().splitlines()[-1])["reason"] == reason


# What is agreed


def test_a_node_joins_works_and_says_what_it_spent(node: Asked) -> None:
    joined = node(join()).header
    assert (joined["size"], joined["left"], joined["schema"]) == (SAMPLES, ROUNDS * STEPS, "")
    for number in range(ROUNDS):
        answer = node(work(round_of(number)))
        assert answer.header["kind"] == "reply"
        reply = task_messages.reply_from_words(answer.header["reply"], answer.arrays, SIZE)
        assert reply.client == 1
        assert reply.update is not None
        assert float(reply.update.norm()) > 0
    assert node.spending() == {EVENT: ROUNDS * STEPS}
    signed = node(ask("ask-statement")).header["statement"]
    said = check(signed, signed["statement"]["public_key"])
    assert said["run"]["releases"] == said["releases"]
    assert list(said["releases"].values()) == [ROUNDS * STEPS]
    assert said["spent"] == said["proven"]
    assert (said["unit"], said["neighbours"], said["delta"], said["accountant"]) == (
        "sample",
        "add/remove one",
        1e-5,
        "rdp",
    )


def test_figures_say_what_was_spent_of_what_is_allowed_and_what_was_refused(node: Asked) -> None:
    node(work())
    node.refused(b"")
    seen = node.service.figures()
    assert 0 < seen["epsilon spent"] < seen["epsilon allowed"] == 30.0
    assert (seen["letters"], seen["released"], seen["releases"], seen["refused not-a-letter"]) == (
        3,
        1,
        STEPS,
        1,
    )
    assert seen["seconds"] >= 0
    assert seen["bytes"] > 4 * SIZE


def test_a_node_computes_on_one_thread(opened: Open) -> None:
    torch.set_num_threads(2)
    try:
        opened()
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(1)


def test_a_greeting_may_be_to_everyone_and_is_answered_by_name(opened: Open) -> None:
    node = opened()
    assert node(ask("ping", to="*")).header["kind"] == "pong"
    assert node.refused(ask("ping", to="c")) == "wrong-node"
    assert node.refused(join(to="*")) == "wrong-node"


def test_the_size_is_said_as_the_policy_says_it(opened: Open) -> None:
    for name, size, declared in (
        ("r", {"rounded": 50}, 100),
        ("c", {"constant": 500}, 500),
        ("e", "exact", SAMPLES),
    ):
        node = opened(name, tell={"size": size})
        assert node(join()).header["size"] == declared
        assert node(work()).header["kind"] == "reply"
    node.service.close()
    again = opened("e", tell={"size": {"constant": 7}})
    assert again(join()).header["size"] == SAMPLES, "once in a run"


def test_surveys_and_metrics_that_were_planned_are_answered_once(opened: Open) -> None:
    node, query, metric = (
        opened(),
        LabelQuery(5.0, secure=True),
        MetricQuery(6.0, 2, 0, 4.0, 0.0, secure=True),
    )
    events = ((query.event, 1), (EVENT, STEPS * ROUNDS), (metric.event, 1))
    assert node(join(replace(PROPOSAL, events=events))).header["left"] == 2 + STEPS * ROUNDS
    counts = node(work(replace(TASK, steps=0, query=query)))
    assert counts.arrays["raw_answer"].shape == (10,)
    unmoved(
        node,
        work(replace(TASK, steps=0, query=replace(query, noise_multiplier=6.0))),
        "order-changed",
    )
    node(work())
    measured = node(work(round_of(ROUNDS, steps=0, query=metric)))
    assert measured.arrays["raw_answer"].shape == (2,)
    assert node.spending() == {query.event: 1, EVENT: STEPS, metric.event: 1}


# What a lying server may ask


def test_one_release_more_than_is_left_is_refused(opened: Open) -> None:
    """Of what is left, whatever the run planned: the node says it when it joins."""
    node = opened(limits={"epsilon": 8.0})
    longer = replace(PROPOSAL, rounds=10, events=((EVENT, 1000),))
    left = node(join(longer)).header["left"]
    assert 4 < left < 36
    for number in range(left // 4):
        assert node(work(round_of(number, steps=4))).header["kind"] == "reply"
    rest = left % 4
    unmoved(node, work(round_of(left // 4, steps=rest + 1)), "over-budget")
    if rest:
        assert node(work(round_of(left // 4, steps=rest))).header["kind"] == "reply"
    assert node.spending() == {EVENT: left}
    unmoved(node, work(round_of(9, steps=1)), "over-budget")
    unmoved(node, join(replace(longer, delta=2e-5), run="another"), "over-budget")


@pytest.mark.parametrize("limit", ["epsilon_a_run", "epsilon_a_year"])
def test_a_run_and_a_year_have_limits_of_their_own(opened: Open, limit: str) -> None:
    node = opened(limits={limit: 6.0}, allow={"most_steps": 100})
    left = node(join(replace(PROPOSAL, events=((EVENT, 1000),)))).header["left"]
    assert node(work(round_of(0, steps=left))).header["kind"] == "reply"
    unmoved(node, work(round_of(1, steps=1)), "over-budget")
    other = join(replace(PROPOSAL, events=((EVENT, 1000),)), run="another")
    if limit == "epsilon_a_run":
        assert node(other).header["left"] > 0
    else:
        unmoved(node, other, "over-budget")


def test_a_run_s_own_epsilon_is_a_limit_too(opened: Open) -> None:
    """However much the policy would allow."""
    node, own = opened(), accountant("rdp").epsilon({EVENT: 2 * STEPS}, 1e-5)
    assert node(join(replace(PROPOSAL, epsilon=own * 1.001))).header["left"] == 2 * STEPS
    for number in range(2):
        assert node(work(round_of(number))).header["kind"] == "reply"
    unmoved(node, work(round_of(2)), "over-budget")


def test_a_run_that_changes_what_it_said_or_whose_it_is_is_refused(
    node: Asked, opened: Open
) -> None:
    assert node(join()).header["kind"] == "joined", "again, as it was"
    unmoved(node, join(replace(PROPOSAL, rounds=4)), "wrong-run")
    unmoved(node, work(run="another"), "not-joined")
    unmoved(node, ask("ask-statement", run="another"), "not-joined")


# What is no order at all


ODD = (
    None,
    True,
    -1,
    0,
    1,
    7,
    10**9,
    10**30,
    -0.5,
    0.0,
    1e-9,
    0.3,
    1e20,
    1e31,
    "",
    "x",
    "noise.gaussian",
    "sampling.poisson",
    "sampling.all",
    [],
    {},
    [1],
)


def changed(words: Any, rng: random.Random) -> Any:
    """With one value, somewhere, another; or one that is lost, or one that is there too much."""
    if not isinstance(words, dict) or not words or rng.random() < 0.2:
        return rng.choice(ODD)
    name = rng.choice(sorted(words))
    if (draw := rng.random()) < 0.05:
        return {key: value for key, value in words.items() if key != name}
    return words | ({f"{name}_": 1} if draw < 0.1 else {name: changed(words[name], rng)})


def test_whatever_an_owner_signs_is_answered_and_what_leaves_is_paid_for(node: Asked) -> None:
    rng, released, reasons = random.Random(0), 0, set()
    for number in range(700):
        task = round_of(rng.randrange(ROUNDS), steps=1)
        head = {
            "kind": "work",
            "run": RUN,
            "to": "b",
            "order": task_messages.task_name(task),
            "task": task_messages.task_to_words(task),
        }
        if number % 4 == 3:
            head = {
                "kind": "join",
                "run": f"run{number}",
                "to": "b",
                "order": "join",
                "proposal": PROPOSAL.to_words(),
            }
        try:
            message = messages.write(
                changed(head, rng), {"model": vector()} if head["kind"] == "work" else {}, OWNER
            )
        except (messages.ProtocolError, TypeError):
            continue
        answer = node(message)
        released += answer.header["kind"] == "reply"
        reasons.add(answer.header.get("reason", answer.header["kind"]))
    assert sum(node.spending().values()) >= released > 0
    assert set(node.spending()) == {EVENT}
    assert not reasons & {"failed", "ledger"}, "all of it was seen at the border"
    assert len(reasons) > 8


# What goes wrong at the node


def test_runs_that_are_joined_and_never_worked_for_and_replies_of_many_runs_fill_no_disk(
    node: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpfl.node.storage.task_log.MOST_WAITING", 3)
    monkeypatch.setattr("dpfl.node.storage.task_log.MOST_KEPT", 2)
    letters_of = {run: work(run=run) for run in ("one", "two", "three")}
    for run, message in letters_of.items():
        node(join(run=run))
        node(message)
    assert len(list((node.folder / "replies").iterdir())) == 2
    unmoved(node, letters_of["one"], "too-many-attempts")
    assert node(letters_of["three"]).header["kind"] == "reply"
    for number in range(9):
        node(join(run=f"waiting{number}"))
    assert node.refused(work(run="waiting0")) == "not-joined"
    assert node(letters_of["three"]).header["kind"] == "reply"


def test_a_second_process_is_kept_out(node: Asked) -> None:
    with pytest.raises(DpflError, match="Another process"):
        Service.open(node.folder / "policy.toml")


def test_a_policy_that_was_changed_holds_from_then_on(node: Asked, opened: Open) -> None:
    node(work())
    node.service.close()
    again = opened(allow={"most_steps": 1})
    unmoved(again, work(round_of(1)), "too-many-steps")
    again.service.close()
    again = opened(limits={"epsilon": 0.5})
    unmoved(again, join(), "over-budget")
    unmoved(again, work(round_of(1)), "join-again")
