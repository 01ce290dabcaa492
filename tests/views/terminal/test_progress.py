"""The progress of a run: a line per evaluation where there is no terminal."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from dpfl.run.metrics import RoundRow
from dpfl.views.terminal.progress import LiveProgress, _rounds_left


def job(test: bool = True, epsilon: float | None = 4.0) -> Any:
    task = SimpleNamespace(headline="accuracy")
    return SimpleNamespace(
        coordinator=SimpleNamespace(state=SimpleNamespace(round=0, remaining=[7, 5])),
        budget=SimpleNamespace(epsilon=epsilon, rounds=None),
        algorithm=SimpleNamespace(has_noise=True, releases_in=lambda rounds: 2),
        notes=["a note"],
        data=SimpleNamespace(private=["3 cells clamped"]),
        recorder=SimpleNamespace(test=SimpleNamespace(task=task) if test else None, every=2),
    )


def lines(work: Any, *rows: RoundRow) -> list[str]:
    console = Console(width=200, file=io.StringIO(), force_terminal=False)
    progress = LiveProgress(console)
    progress.start(work)
    for row in rows:
        progress.tell(row)
    progress.stop()
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined, no-any-return]


def row(number: int, **changes: Any) -> RoundRow:
    usual = {"accuracy": 0.5, "loss": 0.4, "epsilon": 1.001, "headline": 0.5}
    values = {"round": number, "steps": 2, "iterations": 2 * number, "clients": 3} | usual
    return RoundRow(**(values | {"clip": None, "bytes": 8, "seconds": 7.0} | changes))


def test_an_evaluated_round_is_a_line_and_epsilon_is_rounded_up() -> None:
    note, private, line = lines(job(), row(1), row(2, loss=None, headline=None))
    assert note == "a note"
    assert private == "3 cells clamped (shown only to the owner of the data, and stored nowhere)"
    assert line.startswith("round 1/4  tau 2  accuracy 50.00%  epsilon used <= 1.01 of 4")
    assert line.endswith("clients 3  7 s")


def test_without_a_test_set_every_second_round_is_a_line() -> None:
    rows = [row(number, loss=None, headline=None, epsilon=None) for number in (1, 2, 3)]
    *_, line = printed = lines(job(test=False), *rows)
    assert len(printed) == 3
    assert line == "round 2/4  tau 2  clients 3  7 s"


@pytest.mark.parametrize(("remaining", "rounds"), [([], None), ([0], None), ([7, 5], 4)])
def test_epsilon_limits_the_rounds(remaining: list[int], rounds: int | None) -> None:
    work = job()
    work.coordinator.state.remaining = remaining
    assert _rounds_left(work) == rounds
