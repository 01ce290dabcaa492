"""A node and a server that it does not trust: what is agreed is done once and paid for; anything
else is refused by one word, and nothing is released, debited or planned for it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpfl.client.optimisers import Adam
from dpfl.client.task import LocalTraining
from dpfl.codec import canonical
from dpfl.errors import DpflError
from dpfl.node.load_data import schema_digest
from dpfl.node.service import Service
from dpfl.node.statement import check
from dpfl.privacy import All, FixedSize, Flat, Gaussian, Poisson, PoissonSize, Release, accountant
from dpfl.privacy.accounting.events import gaussian
from dpfl.privacy.mechanisms.haar_release import HaarClip, HaarNoise
from dpfl.privacy.mechanisms.matrix_release import BandedNoise
from dpfl.privacy.mechanisms.release import UpdateRelease
from dpfl.privacy.mechanisms.sampling import Cyclic
from dpfl.privacy.mechanisms.secure_noise import SecureGaussian
from dpfl.privacy.queries.columns import ColumnQuery
from dpfl.privacy.queries.histogram import LabelQuery
from dpfl.privacy.queries.mean import MeanQuery
from dpfl.privacy.queries.metric import MetricQuery
from dpfl.protocol import messages, task_messages
from dpfl.protocol.keys import load_private
from dpfl.tasks import Binary, MultiClass
from tests.node.loopback import (
    EVENT,
    OWNER,
    PROPOSAL,
    RELEASE,
    ROUNDS,
    RUN,
    SAMPLES,
    SIZE,
    STEPS,
    TASK,
    Asked,
    ask,
    join,
    new_node,
    round_of,
    vector,
    work,
    write_policy,
)  # fmt: skip

OTHER = Ed25519PrivateKey.from_private_bytes(bytes(32))
Open = Callable[..., Asked]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Nodes that are closed at the end; the same folder again where it is there."""
    live: list[Service] = []

    def start(name: str = "b", **changes: Any) -> Asked:
        folder = tmp_path / name
        policy = write_policy(folder, **changes) if folder.exists() else new_node(folder, **changes)
        found = Asked.open(policy)
        live.append(found.service)
        return found

    yield start
    for service in live:
        service.close()


@pytest.fixture
def node(opened: Open) -> Asked:
    """One that has joined."""
    found = opened()
    assert found(join()).head["kind"] == "joined"
    return found


def unmoved(node: Asked, letter: bytes, reason: str) -> None:
    """Refused by this word, in the log; and nothing else happened."""
    before, replies = node.rows(), sorted((node.folder / "replies").iterdir())
    assert node.refused(letter) == reason
    assert node.rows() == before
    assert sorted((node.folder / "replies").iterdir()) == replies
    assert json.loads(node.log().splitlines()[-1])["reason"] == reason


# What is agreed


def test_a_node_joins_works_and_says_what_it_spent(node: Asked) -> None:
    joined = node(join()).head
    assert (joined["size"], joined["left"], joined["schema"]) == (SAMPLES, ROUNDS * STEPS, "")
    for number in range(ROUNDS):
        answer = node(work(round_of(number)))
        assert answer.head["kind"] == "reply"
        reply = task_messages.reply_from_words(answer.head["reply"], answer.arrays, SIZE)
        assert reply.client == 1
        assert reply.update is not None
        assert float(reply.update.norm()) > 0
    assert node.spending() == {EVENT: ROUNDS * STEPS}
    signed = node(ask("ask-statement")).head["statement"]
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
    assert seen["seconds"] > 0
    assert seen["bytes"] > 4 * SIZE


def test_a_greeting_may_be_to_everyone_and_is_answered_by_name(opened: Open) -> None:
    node = opened()
    assert node(ask("ping", to="*")).head["kind"] == "pong"
    assert node.refused(ask("ping", to="c")) == "wrong-node"
    assert node.refused(join(to="*")) == "wrong-node"


def test_an_order_that_comes_again_gets_the_same_reply_and_costs_nothing(
    node: Asked, opened: Open
) -> None:
    letter = work()
    first, before = node.service.answer(letter), node.rows()
    assert node.service.answer(letter) == first
    node.service.close()
    again = opened()
    assert again.service.answer(letter) == first, "also after the node was started anew"
    assert again.rows() == before
    unmoved(again, work(model=vector(1)), "order-changed")
    unmoved(again, work(replace(TASK, steps=1)), "order-changed")


def test_replies_are_kept_for_the_last_round_and_the_past_is_over(node: Asked) -> None:
    first = work(round_of(1))
    node(first)
    node(work(round_of(2)))
    assert len(list((node.folder / "replies").iterdir())) == 1
    unmoved(node, first, "order-past")
    unmoved(node, work(round_of(0)), "order-past")


def test_noise_is_fresh_and_of_the_node_alone(opened: Open) -> None:
    one, two = opened("one"), opened("two")
    answers = []
    for node in (one, two):
        node(join())
        answers.append(node(work()).arrays["update"])
    assert not np.allclose(*answers), "the same data, the same order, and other noise"


def test_the_size_is_said_as_the_policy_says_it(opened: Open) -> None:
    for name, size, declared in (
        ("r", {"rounded": 50}, 100),
        ("c", {"constant": 500}, 500),
        ("e", "exact", SAMPLES),
    ):
        node = opened(name, tell={"size": size})
        assert node(join()).head["size"] == declared
        assert node(work()).head["kind"] == "reply"
    node.service.close()
    again = opened("e", tell={"size": {"constant": 7}})
    assert again(join()).head["size"] == SAMPLES, "once in a run"


def test_replies_have_the_same_size_whatever_came_out(node: Asked) -> None:
    """But for the head of the ledger, which counts what was asked for, and knows nothing of what
    came out.
    """
    lengths = set()
    for number in range(4):
        answer = node.service.answer(work(round_of(number), vector(number)))
        head = messages.read(
            answer, load_private(node.folder / "node.pem").public_key(), 1 << 24
        ).head["ledger_head"]
        lengths.add(len(answer) - len(canonical(head)))
    assert len(lengths) == 1


def test_surveys_and_metrics_that_were_planned_are_answered_once(opened: Open) -> None:
    node, survey, metric = (
        opened(),
        LabelQuery(5.0, secure=True),
        MetricQuery(6.0, 2, 0, 4.0, 0.0, secure=True),
    )
    events = ((survey.event, 1), (EVENT, STEPS * ROUNDS), (metric.event, 1))
    assert node(join(replace(PROPOSAL, events=events))).head["left"] == 2 + STEPS * ROUNDS
    counts = node(work(replace(TASK, steps=0, query=survey)))
    assert counts.arrays["raw_answer"].shape == (10,)
    unmoved(
        node,
        work(replace(TASK, steps=0, query=replace(survey, noise_multiplier=6.0))),
        "order-changed",
    )
    node(work())
    measured = node(work(round_of(ROUNDS, steps=0, query=metric)))
    assert measured.arrays["raw_answer"].shape == (2,)
    assert node.spending() == {survey.event: 1, EVENT: STEPS, metric.event: 1}


def test_replies_leave_at_whole_multiples_of_a_time(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After their order came, whatever is done for it the first time."""
    slept: list[float] = []
    moments: list[float] = []

    def monotonic() -> float:
        moments.append(moments[-1] + 0.07 if moments else 0.0)
        return moments[-1]

    node = opened(tell={"every": 0.5})
    node(join())
    monkeypatch.setattr(
        "dpfl.node.service.time", SimpleNamespace(monotonic=monotonic, sleep=slept.append)
    )
    for number in range(2):
        moments.clear()
        node(work(round_of(number)))
        assert 0 < slept[-1] <= 0.5
        assert (moments[-1] + slept[-1]) / 0.5 == pytest.approx(
            round((moments[-1] + slept[-1]) / 0.5)
        )
    assert len(slept) == 2


# What a lying server may ask

HAAR = Release(Poisson(0.2), HaarClip(1.0, ends=(SIZE,)), HaarNoise(5.0, ends=(SIZE,)))
TASKS: dict[str, tuple[Any, str]] = {
    "more steps": (round_of(0, steps=5), "too-many-steps"),
    "no steps": (round_of(0, steps=0), "bad-words"),
    "less noise": (
        round_of(0, samples=replace(RELEASE, noise=SecureGaussian(0.79))),
        "too-little-noise",
    ),
    "a larger clip": (round_of(0, samples=replace(RELEASE, clip=Flat(2.01))), "clip-too-large"),
    "a higher rate": (
        round_of(0, samples=replace(RELEASE, sampling=Poisson(0.51))),
        "rate-too-high",
    ),
    "all samples": (round_of(0, samples=replace(RELEASE, sampling=All())), "rate-too-high"),
    "another rate than was planned": (
        round_of(0, samples=replace(RELEASE, sampling=Poisson(0.3))),
        "not-planned",
    ),
    "more noise than was planned": (
        round_of(0, samples=replace(RELEASE, noise=SecureGaussian(2.0))),
        "not-planned",
    ),
    "noise in floating point": (
        round_of(0, samples=replace(RELEASE, noise=Gaussian(1.0))),
        "not-secure",
    ),
    "Haar noise": (round_of(0, samples=HAAR), "not-secure"),
    "Haar coefficients of another model": (
        round_of(
            0,
            samples=replace(
                HAAR, clip=HaarClip(1.0, ends=(10**9,)), noise=HaarNoise(5.0, ends=(10**9,))
            ),
        ),
        "bad-words",
    ),
    "noise that is taken back": (
        round_of(0, samples=Release(Cyclic(10), Flat(1.0), BandedNoise(1.0, rounds=9, turns=2))),
        "uncovered",
    ),
    "a batch counted by what is there": (
        round_of(0, samples=replace(RELEASE, sampling=PoissonSize(12))),
        "uncovered",
    ),
    "a batch of a fixed size": (
        round_of(0, samples=replace(RELEASE, sampling=FixedSize(12))),
        "other-unit",
    ),
    "a division by the batch": (
        round_of(0, samples=replace(RELEASE, divide_by_drawn=True)),
        "raw-values",
    ),
    "a raw value": (round_of(0, raw=True), "raw-values"),
    "no noise": (round_of(0, samples=Release(Poisson(0.2), Flat(1.0))), "without-noise"),
    "nothing private at all": (round_of(0, samples=None), "without-noise"),
    "noise that the server adds": (
        round_of(0, samples=None, clients=Release(All(), Flat(1.0), SecureGaussian(1.0))),
        "not-trusted",
    ),
    "an upload for less than a sample moves": (
        round_of(
            0,
            samples=None,
            update=UpdateRelease(clip=Flat(1.0), noise=SecureGaussian(1.0), sensitivity_bound=0.1),
        ),
        "uncovered",
    ),
    "an upload of clients": (
        round_of(
            0,
            samples=None,
            update=UpdateRelease(
                clip=Flat(1.0), noise=SecureGaussian(1.0), sensitivity_bound=2.0, protects="client"
            ),
        ),
        "other-unit",
    ),
    "a slope without noise": (
        round_of(
            0,
            slope=True,
            update=UpdateRelease(clip=Flat(1.0), noise=SecureGaussian(1.0), sensitivity_bound=2.0),
        ),
        "uncovered",
    ),
    "a slope that was not planned": (
        round_of(0, slope=True, samples=replace(RELEASE, sampling=Poisson(0.1))),
        "not-planned",
    ),
    "exact counts": (replace(TASK, steps=0, query=LabelQuery(None)), "raw-values"),
    "exact counts for a trusted server": (
        replace(TASK, steps=0, query=LabelQuery(None, trusted=True)),
        "not-trusted",
    ),
    "counts with little noise": (
        replace(TASK, steps=0, query=LabelQuery(0.5, secure=True)),
        "too-little-noise",
    ),
    "counts in floating point": (replace(TASK, steps=0, query=LabelQuery(5.0)), "not-secure"),
    "counts that were not planned": (
        replace(TASK, steps=0, query=LabelQuery(5.0, secure=True)),
        "not-planned",
    ),
    "a mean that was not planned": (
        replace(TASK, steps=0, query=MeanQuery(5.0, True)),
        "not-planned",
    ),
    "columns that are not there": (
        replace(TASK, steps=0, query=ColumnQuery(5.0, 9, (784,), secure=True)),
        "other-schema",
    ),
    "a metric on samples that were not kept out": (
        round_of(ROUNDS, steps=0, query=MetricQuery(5.0, 1, 0, 1.0, 0.2, secure=True)),
        "other-schema",
    ),
    "another round": (round_of(ROUNDS), "too-many-rounds"),
    "another client": (replace(TASK, client=0), "wrong-node"),
}


@pytest.mark.parametrize("what", TASKS)
def test_a_task_that_the_policy_does_not_allow_is_refused(node: Asked, what: str) -> None:
    task, reason = TASKS[what]
    unmoved(node, work(task), reason)


RUNS: dict[str, tuple[Any, str]] = {
    "a published variant": (replace(PROPOSAL, variant="published"), "variant-not-allowed"),
    "another system": (replace(PROPOSAL, system="fedavg"), "system-not-allowed"),
    "another model": (replace(PROPOSAL, model="resnet-18", options=()), "model-not-allowed"),
    "a model by an import path": (
        replace(PROPOSAL, model="os:system", options=(("command", "true"),)),
        "model-not-allowed",
    ),
    "options that a model does not have": (
        replace(PROPOSAL, options=(("name", "cnn"),)),
        "model-not-allowed",
    ),
    "a model of 3 GB": (replace(PROPOSAL, options=(("hidden", 1_000_000),)), "too-large"),
    "a model that takes hours to build": (
        replace(PROPOSAL, model="transformer", options=(("layers", 1_000_000), ("vocabulary", 4))),
        "model-not-allowed",
    ),
    "another task": (replace(PROPOSAL, learning=Binary()), "other-schema"),
    "other classes": (replace(PROPOSAL, learning=MultiClass(11)), "other-schema"),
    "another shape": (replace(PROPOSAL, shape=(784,)), "other-schema"),
    "a table": (replace(PROPOSAL, schema="0" * 64), "other-schema"),
    "more rounds": (replace(PROPOSAL, rounds=11), "too-many-rounds"),
    "another unit": (replace(PROPOSAL, unit="client"), "other-unit"),
    "other neighbours": (replace(PROPOSAL, neighbours="replace one"), "other-unit"),
    "events of other neighbours": (
        replace(PROPOSAL, events=((FixedSize(6).event(2.0, SAMPLES), 5),), accountant="rdp"),
        "other-unit",
    ),
    "events without noise": (replace(PROPOSAL, events=((gaussian(0.0), 1),)), "too-little-noise"),
    "events with less noise": (replace(PROPOSAL, events=((gaussian(0.7), 1),)), "too-little-noise"),
    "noise in floating point": (replace(PROPOSAL, noise="floating-point"), "not-secure"),
    "a place of another": (replace(PROPOSAL, client=0), "wrong-node"),
    "no noise at all": (replace(PROPOSAL, unit="none", events=(), noise="none"), "without-noise"),
    "noise at the server": (replace(PROPOSAL, unit="client", events=()), "not-trusted"),
}


@pytest.mark.parametrize("what", RUNS)
def test_a_run_that_the_policy_does_not_allow_is_refused_and_not_worked_for(
    opened: Open, what: str
) -> None:
    node = opened()
    proposal, reason = RUNS[what]
    unmoved(node, join(proposal), reason)
    unmoved(node, work(), "not-joined")


def test_one_release_more_than_is_left_is_refused(opened: Open) -> None:
    """Of what is left, whatever the run planned: the node says it when it joins."""
    node = opened(limits={"epsilon": 8.0})
    longer = replace(PROPOSAL, rounds=10, events=((EVENT, 1000),))
    left = node(join(longer)).head["left"]
    assert 4 < left < 36
    for number in range(left // 4):
        assert node(work(round_of(number, steps=4))).head["kind"] == "reply"
    rest = left % 4
    unmoved(node, work(round_of(left // 4, steps=rest + 1)), "over-budget")
    if rest:
        assert node(work(round_of(left // 4, steps=rest))).head["kind"] == "reply"
    assert node.spending() == {EVENT: left}
    unmoved(node, work(round_of(9, steps=1)), "over-budget")
    unmoved(node, join(replace(longer, delta=2e-5), run="another"), "over-budget")


@pytest.mark.parametrize("limit", ["epsilon_a_run", "epsilon_a_year"])
def test_a_run_and_a_year_have_limits_of_their_own(opened: Open, limit: str) -> None:
    node = opened(limits={limit: 6.0}, allow={"most_steps": 100})
    left = node(join(replace(PROPOSAL, events=((EVENT, 1000),)))).head["left"]
    assert node(work(round_of(0, steps=left))).head["kind"] == "reply"
    unmoved(node, work(round_of(1, steps=1)), "over-budget")
    other = join(replace(PROPOSAL, events=((EVENT, 1000),)), run="another")
    if limit == "epsilon_a_run":
        assert node(other).head["left"] > 0
    else:
        unmoved(node, other, "over-budget")


def test_a_run_s_own_epsilon_is_a_limit_too(opened: Open) -> None:
    """However much the policy would allow."""
    node, own = opened(), accountant("rdp").epsilon({EVENT: 2 * STEPS}, 1e-5)
    assert node(join(replace(PROPOSAL, epsilon=own * 1.001))).head["left"] == 2 * STEPS
    for number in range(2):
        assert node(work(round_of(number))).head["kind"] == "reply"
    unmoved(node, work(round_of(2)), "over-budget")


def test_a_run_that_changes_what_it_said_or_whose_it_is_is_refused(
    node: Asked, opened: Open
) -> None:
    assert node(join()).head["kind"] == "joined", "again, as it was"
    unmoved(node, join(replace(PROPOSAL, rounds=4)), "wrong-run")
    unmoved(node, work(run="another"), "not-joined")
    unmoved(node, ask("ask-statement", run="another"), "not-joined")


def test_an_owner_cannot_order_in_the_run_of_another(opened: Open) -> None:
    from dpfl.protocol.keys import raw

    node = opened(owners={"other": raw(OTHER.public_key())})
    node(join())
    for letter in (work(key=OTHER), join(key=OTHER), ask("ask-statement", key=OTHER)):
        unmoved(node, letter, "wrong-run")


# What is no order at all


def test_letters_of_a_stranger_or_for_another_node_are_refused(node: Asked) -> None:
    unmoved(node, work(key=OTHER), "bad-signature")
    unmoved(node, join(key=OTHER), "bad-signature")
    unmoved(node, work(to="a"), "wrong-node")
    letter = work()
    for data, reason in (
        (letter[:-1], "bad-signature"),
        (b"", "not-a-letter"),
        (b"x" * (1 << 21) + b"x", "too-large"),
    ):
        unmoved(node, data, reason)


@pytest.mark.parametrize("kind", ["train", "evaluate", "reply", "query", "", "joined", "__class__"])
def test_an_unknown_message_is_refused(node: Asked, kind: str) -> None:
    unmoved(node, ask(kind), "unknown-message")


@pytest.mark.parametrize(
    "letter",
    [
        work(more=1),
        join(more=1),
        ask("ping", to="*", more=1),
        ask("join"),
        ask("work"),
        ask("join", proposal={}),
        ask("work", order="0/train", task={"part": "task"}),
        work(order="1/train"),
        work(order="0/probe"),
        work(order=3),
        work(run="../../etc"),
        work(run=""),
        ask("join", proposal=[["a"]] * 3),
        join(run="a" * 65),
        ask("work", order="0/query.histogram", task=task_messages.task_to_words(TASK)),
    ],
)
def test_words_that_are_missing_unknown_or_of_another_type_are_refused(
    node: Asked, letter: bytes
) -> None:
    unmoved(node, letter, "bad-words")


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"model": np.zeros(SIZE)},
        {"model": np.zeros(SIZE - 1, np.float32)},
        {"model": np.zeros((1, SIZE), np.float32)},
        {"model": vector(), "correction": np.zeros(3, np.float32)},
        {"model": vector(), "data": np.zeros(3, np.float32)},
        {"correction": vector()},
    ],
)
def test_arrays_that_are_not_a_model_s_are_refused(
    node: Asked, arrays: dict[str, np.ndarray]
) -> None:
    unmoved(node, work(arrays=arrays), "bad-arrays")


@pytest.mark.parametrize(
    ("size", "reason"), [({"constant": 500}, "size-not-exact"), ("exact", "rate-too-high")]
)
def test_nobody_learns_how_many_samples_there_are_by_batches_that_cannot_be_drawn(
    opened: Open, size: Any, reason: str
) -> None:
    upload = UpdateRelease(clip=Flat(1.0), noise=SecureGaussian(1.0), sensitivity_bound=2.0)
    node = opened(tell={"size": size})
    node(join(replace(PROPOSAL, events=((upload.event(1), 5),))))
    task = replace(TASK, samples=Release(FixedSize(SAMPLES + 1), Flat(1.0)), update=upload)
    unmoved(node, work(task), reason)
    fits = replace(task, samples=Release(FixedSize(6), Flat(1.0)))
    if size == "exact":
        assert node(work(fits)).head["kind"] == "reply"
    else:
        unmoved(node, work(fits), reason)


def test_a_model_of_the_owner_s_own_has_the_owner_s_options(opened: Open) -> None:
    path = "tests.node.loopback:own_net"
    node = opened(allow={"own_models": {path: {"hidden": 3}}})
    unmoved(
        node, join(replace(PROPOSAL, model=path, options=(("hidden", 4),))), "model-not-allowed"
    )
    unmoved(
        node,
        join(replace(PROPOSAL, model="tests.node.loopback:vector", options=())),
        "model-not-allowed",
    )
    assert (
        node(join(replace(PROPOSAL, model=path, options=(("hidden", 3),)))).head["kind"] == "joined"
    )
    assert node(work(model=np.zeros(785 * 3 + 40, np.float32))).head["kind"] == "reply"


def test_another_optimiser_costs_the_same_and_is_done(node: Asked) -> None:
    assert node(work(replace(TASK, local=LocalTraining(Adam(0.1))))).head["kind"] == "reply"


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
            "order": task_messages.order_of(task),
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
            letter = messages.write(
                changed(head, rng), {"model": vector()} if head["kind"] == "work" else {}, OWNER
            )
        except (messages.ProtocolError, TypeError):
            continue
        answer = node(letter)
        released += answer.head["kind"] == "reply"
        reasons.add(answer.head.get("reason", answer.head["kind"]))
    assert sum(node.spending().values()) >= released > 0
    assert set(node.spending()) == {EVENT}
    assert not reasons & {"failed", "ledger"}, "all of it was seen at the border"
    assert len(reasons) > 8


# What goes wrong at the node


def test_an_exception_carries_nothing_and_its_order_is_not_done_again(
    node: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> None:
        raise ValueError("patient 4711 has 3 children")

    monkeypatch.setattr("dpfl.client.runner.private_steps", failing)
    letter = work()
    assert node.refused(letter) == "failed"
    assert "4711" not in node.log()
    assert "ValueError" in node.log()
    assert node.spending() == {EVENT: STEPS}, "paid for, since it may have"
    monkeypatch.undo()
    before = node.rows()
    assert node.refused(letter) == "failed", "a letter that is replayed drains no budget"
    assert node.rows() == before


def test_a_run_that_failed_too_often_is_over(node: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each failure may say something of the data, and no noise covers that."""

    def failing(*_: Any) -> None:
        raise IndexError

    monkeypatch.setattr("dpfl.client.runner.private_steps", failing)
    for number in range(3):
        assert node.refused(work(round_of(number))) == "failed"
    monkeypatch.undo()
    unmoved(node, work(round_of(3)), "failed")
    node(join(run="another"))
    assert node(work(run="another")).head["kind"] == "reply"


def test_what_is_not_finite_is_not_sent(node: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "dpfl.client.runner.private_steps",
        lambda gradients, *_: gradients.model.vector.fill_(np.inf),
    )
    assert node.refused(work()) == "diverged"
    huge = np.full(SIZE, 3e38, np.float32)
    monkeypatch.undo()
    assert node(work(round_of(1), huge)).head["kind"] in ("reply", "refused")


def test_a_disk_that_is_full_is_said_before_anything_is_debited(
    node: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpfl.node.service.ROOM", 1 << 60)
    unmoved(node, work(), "no-room")


def test_runs_that_are_joined_and_never_worked_for_and_replies_of_many_runs_fill_no_disk(
    node: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpfl.node.task_log.MOST_WAITING", 3)
    monkeypatch.setattr("dpfl.node.task_log.MOST_KEPT", 2)
    letters_of = {run: work(run=run) for run in ("one", "two", "three")}
    for run, letter in letters_of.items():
        node(join(run=run))
        node(letter)
    assert len(list((node.folder / "replies").iterdir())) == 2
    unmoved(node, letters_of["one"], "too-many-attempts")
    assert node(letters_of["three"]).head["kind"] == "reply"
    for number in range(9):
        node(join(run=f"waiting{number}"))
    assert node.refused(work(run="waiting0")) == "not-joined"
    assert node(letters_of["three"]).head["kind"] == "reply"


def test_a_full_log_becomes_an_older_one(node: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpfl.node.journal.MOST_BYTES", 2000)
    for _ in range(120):
        node.service.answer(b"")
    names = sorted(path.name for path in node.folder.glob("node.log*"))
    assert names == ["node.log", *(f"node.log.{number}" for number in range(1, 5))]
    assert all(path.stat().st_size < 2500 for path in node.folder.glob("node.log*"))


def test_a_node_that_cannot_open_a_new_log_answers_and_goes_on(
    node: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpfl.node.journal.MOST_BYTES", 0)
    (node.folder / "node.log.1").mkdir()
    (node.folder / "node.log.2").mkdir()
    for _ in range(3):
        assert node.refused(b"") == "not-a-letter"
    assert node(work()).head["kind"] == "reply"


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


def test_a_node_whose_unit_is_a_person_trains_by_person_and_counts_persons(opened: Open) -> None:
    words = {
        "data": {"name": "randhie", "classes": None},
        "split": {"client": 1, "partition": "site"},
    }
    node = opened(limits={"unit": "person"}, allow={"models": ["linear"]}, **words)
    held = node.service.held
    proposal = replace(
        PROPOSAL,
        unit="person",
        model="linear",
        options=(),
        learning=held.task,
        shape=held.shape,
        schema=schema_digest(held),
    )
    unmoved(node, join(replace(proposal, unit="sample")), "other-unit")
    joined = node(join(proposal)).head
    assert joined["size"] == held.counted("person")[0] < len(held.train)
    assert joined["schema"] == proposal.schema
    size = node.service._node(RUN, proposal, joined["size"]).model.layout.size
    assert node(work(model=np.zeros(size, np.float32))).head["kind"] == "reply"
    assert node.spending() == {EVENT: STEPS}
