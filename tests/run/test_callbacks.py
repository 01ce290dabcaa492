"""A callback hears every round once; one that fails costs nothing but itself."""

from __future__ import annotations

from typing import Any

import pytest

import dpfl
from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.loggers import Callback, RunStart
from dpfl.run.metrics import RoundRow
from tests.conftest import StopsAfter
from tests.run.small_runs import Train

pytestmark = pytest.mark.usefixtures("offline")

SYSTEM = dpfl.algorithms.fedavg_dp(noise_multiplier=2.0)
SEED = 918_273_645


class Listener(Callback):
    def __init__(self, fails: str = "") -> None:
        self.heard: list[Any] = []
        self._fails = fails

    def _hear(self, what: str, value: Any = None) -> None:
        self.heard.append((what, value))
        if what == self._fails:
            raise RuntimeError(f"cannot {what}\nat all")

    def on_start(self, run: RunStart) -> None:
        self._hear("on_start", run)

    def on_round(self, row: RoundRow) -> None:
        self._hear("on_round", row)

    def on_end(self, result: dpfl.Result) -> None:
        self._hear("on_end", result)

    def on_interruption(self) -> None:
        self._hear("on_interruption")

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.heard]


def test_a_callback_hears_every_round_once_and_the_result(
    train: Train, federation: Federation
) -> None:
    listener = Listener()
    result = train(
        federation,
        SYSTEM,
        rounds=3,
        callbacks=[listener, Callback()],
        evaluate_every=1,
        seed=SEED,
        accountant="rdp",
    )
    assert listener.names == ["on_start", "on_round", "on_round", "on_round", "on_end"]
    started = listener.heard[0][1]
    assert started.folder == result.folder
    assert started.run == result.run
    assert started.settings["algorithm"]["name"] == "fedavg-dp"
    assert str(SEED) not in str(started)
    assert [row.round for _, row in listener.heard[1:4]] == [1, 2, 3]
    assert listener.heard[-1][1] is result
    assert (result.folder / "result.json").exists()


@pytest.mark.parametrize("fails", ["on_start", "on_round", "on_end"])
def test_a_callback_that_fails_costs_nothing_but_itself(
    train: Train, federation: Federation, fails: str
) -> None:
    broken, other = Listener(fails), Listener()
    result = train(federation, SYSTEM, rounds=2, callbacks=[broken, other], accountant="rdp")
    assert broken.names[-1] == fails
    assert broken.names.count(fails) == 1
    assert other.names == ["on_start", "on_round", "on_round", "on_end"]
    assert (
        f"Listener.{fails} failed (RuntimeError: cannot {fails}) and was told nothing more."
        in result.warnings
    )


def test_a_run_that_is_broken_off_says_so_and_goes_on_where_it_was(
    train: Train, federation: Federation
) -> None:
    listener = Listener()
    with pytest.raises(KeyboardInterrupt):
        train(
            federation,
            SYSTEM,
            rounds=3,
            callbacks=[listener],
            progress=StopsAfter(2),
            accountant="rdp",
        )
    assert listener.names[-1] == "on_interruption"
    again = Listener()
    train(federation, SYSTEM, rounds=3, callbacks=[again], resume=True, accountant="rdp")
    assert again.heard[0][1].rounds_done == 2
    assert [row.round for name, row in again.heard if name == "on_round"] == [3]


def test_of_a_run_that_was_refused_nobody_is_told(train: Train, federation: Federation) -> None:
    listener = Listener()
    with pytest.raises(DpflError):
        train(federation, "fedavg", callbacks=[listener])
    assert listener.names == []


def test_a_callback_of_the_version_before_hears_of_the_run_and_warns(
    train: Train, federation: Federation
) -> None:
    names: list[str] = []
    methods = {
        "started": lambda self, run: names.append("started"),
        "round": lambda self, row: names.append("round"),
        "ended": lambda self, result: names.append("ended"),
        "broken_off": lambda self: names.append("broken_off"),
    }
    with pytest.warns(DeprecationWarning, match=r"Old\.\w+ is now Old\.on_") as warnings:
        listener = type("Old", (Callback,), methods)()
    assert len(warnings) == len(methods)
    train(federation, SYSTEM, rounds=2, callbacks=[listener], accountant="rdp")
    assert names == ["started", "round", "round", "ended"]
    listener.on_interruption()
    assert names[-1] == "broken_off"
