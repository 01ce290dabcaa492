"""How tasks are executed: once, paid for, and with nothing in a failure."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dpfl.codec import canonical
from dpfl.protocol import messages
from dpfl.protocol.keys import load_private
from tests.node.loopback import (
    EVENT,
    SIZE,
    STEPS,
    TASK,
    Asked,
    Open,
    join,
    round_of,
    vector,
    work,
)  # fmt: skip
from tests.node.test_service import unmoved


def test_an_order_that_comes_again_gets_the_same_reply_and_costs_nothing(
    node: Asked, opened: Open
) -> None:
    message = work()
    first, before = node.service.answer(message), node.rows()
    assert node.service.answer(message) == first
    node.service.close()
    again = opened()
    assert again.service.answer(message) == first, "also after the node was started anew"
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


def test_replies_have_the_same_size_whatever_came_out(node: Asked) -> None:
    """But for the head of the ledger, which counts what was asked for, and knows nothing of what
    came out.
    """
    lengths = set()
    for number in range(4):
        answer = node.service.answer(work(round_of(number), vector(number)))
        head = messages.read(
            answer, load_private(node.folder / "node.pem").public_key(), 1 << 24
        ).header["ledger_head"]
        lengths.add(len(answer) - len(canonical(head)))
    assert len(lengths) == 1


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
        "dpfl.node.task_execution.time", SimpleNamespace(monotonic=monotonic, sleep=slept.append)
    )
    for number in range(2):
        moments.clear()
        node(work(round_of(number)))
        assert 0 < slept[-1] <= 0.5
        assert (moments[-1] + slept[-1]) / 0.5 == pytest.approx(
            round((moments[-1] + slept[-1]) / 0.5)
        )
    assert len(slept) == 2


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


def test_an_exception_carries_nothing_and_its_order_is_not_done_again(
    node: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> None:
        raise ValueError("patient 4711 has 3 children")

    monkeypatch.setattr("dpfl.client.training.private_steps", failing)
    message = work()
    assert node.refused(message) == "failed"
    assert "4711" not in node.log()
    assert "ValueError" in node.log()
    assert node.spending() == {EVENT: STEPS}, "paid for, since it may have"
    monkeypatch.undo()
    before = node.rows()
    assert node.refused(message) == "failed", "a letter that is replayed drains no budget"
    assert node.rows() == before


def test_a_run_that_failed_too_often_is_over(node: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each failure may say something of the data, and no noise covers that."""

    def failing(*_: Any) -> None:
        raise IndexError

    monkeypatch.setattr("dpfl.client.training.private_steps", failing)
    for number in range(3):
        assert node.refused(work(round_of(number))) == "failed"
    monkeypatch.undo()
    unmoved(node, work(round_of(3)), "failed")
    node(join(run="another"))
    assert node(work(run="another")).header["kind"] == "reply"


def test_what_is_not_finite_is_not_sent(node: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "dpfl.client.training.private_steps",
        lambda gradients, *_: gradients.model.vector.fill_(np.inf),
    )
    assert node.refused(work()) == "diverged"
    huge = np.full(SIZE, 3e38, np.float32)
    monkeypatch.undo()
    assert node(work(round_of(1), huge)).header["kind"] in ("reply", "refused")


def test_a_disk_that_is_full_is_said_before_anything_is_debited(
    node: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpfl.node.task_execution.FREE_BYTES", 1 << 60)
    unmoved(node, work(), "no-room")
