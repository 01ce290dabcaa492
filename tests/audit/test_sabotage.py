"""Faults put into the code on purpose: each is caught by an audit. docs/truth.md lists them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpfl.algorithms import custom, dp_fedavg, fedavg_dp
from dpfl.audit import audit
from dpfl.node import node
from dpfl.privacy import Keyed, Ledger, Release, clip
from dpfl.privacy.events import Event
from dpfl.server.algorithm import Algorithm
from dpfl.server.coordinator import Coordinator

Sabotage = Callable[[pytest.MonkeyPatch], None]
SAMPLES, CLIENTS = fedavg_dp(noise_multiplier=1.0), dp_fedavg(noise_multiplier=1.0)
UPLOADS = custom(where="uploads", noise_multiplier=1.0)


def halve_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Release.deviation
    monkeypatch.setattr(Release, "deviation", lambda self, *rest: honest(self, *rest) / 2)


def drop_the_clip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clip, "shrink", lambda norms, bound: norms.new_ones(norms.shape))


def reuse_a_noise_key(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Keyed.generator

    def same(self: Keyed, purpose: str, round: int = 0, client: int = 0) -> np.random.Generator:
        return honest(Keyed(self.seed), purpose, 0, client)

    monkeypatch.setattr(Keyed, "generator", same)


def forget_a_debit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one of every task, or all of them where a task has one."""
    honest = Ledger._enter

    def forgetful(self: Ledger, run: str, release: str, event: Event, count: int, *rest: Any) -> None:
        if count > 1:
            honest(self, run, release, event, count - 1, *rest)

    monkeypatch.setattr(Ledger, "_enter", forgetful)


def divide_by_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = node.private_steps

    def realised(gradients: Any, data: Any, size: int, steps: int, local: Any, release: Release, *rest: Any) -> None:
        honest(gradients, data, size, steps, local, replace(release, realised=True), *rest)

    monkeypatch.setattr(node, "private_steps", realised)


def forget_the_noise_of_the_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def exact(self: Coordinator, replies: Any, randomness: Any) -> None:
        release = self.state.clients
        fraction = sum(reply.inside for reply in replies) / len(replies)
        self.state.clients = replace(release, clip=release.clip.adapt(fraction))

    monkeypatch.setattr(Coordinator, "_adapt_quantile", exact)


QUANTILE = dp_fedavg(clipping="quantile", noise_multiplier=1.0)
CAUGHT: list[tuple[Sabotage, Algorithm, str]] = [
    (halve_the_noise, SAMPLES, "one release"),
    (halve_the_noise, UPLOADS, "one release"),
    (halve_the_noise, CLIENTS, "one release"),
    (drop_the_clip, SAMPLES, "one release"),
    (drop_the_clip, SAMPLES, "whole run"),
    (drop_the_clip, UPLOADS, "one release"),
    (drop_the_clip, CLIENTS, "one release"),
    (reuse_a_noise_key, SAMPLES, "books"),
    (reuse_a_noise_key, UPLOADS, "books"),
    (reuse_a_noise_key, CLIENTS, "books"),
    (forget_a_debit, replace(SAMPLES, steps=replace(SAMPLES.steps, tau=3)), "books"),
    (forget_a_debit, UPLOADS, "books"),
    (forget_a_debit, CLIENTS, "books"),
    (divide_by_the_batch, SAMPLES, "leaks"),
    (forget_the_noise_of_the_count, QUANTILE, "leaks"),
]
NAMES = [f"{sabotage.__name__} of {made.scale} in {game}" for sabotage, made, game in CAUGHT]


@pytest.mark.parametrize(("sabotage", "made", "game"), CAUGHT, ids=NAMES)
def test_a_fault_is_caught(sabotage: Sabotage, made: Algorithm, game: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert audit(made, trials=2000, games=[game]).verdict == "consistent"
    sabotage(monkeypatch)
    assert audit(made, trials=2000, games=[game]).verdict == "broken"


def test_the_page_lists_every_fault_with_the_game_that_catches_it() -> None:
    page = (Path(__file__).parents[2] / "docs" / "truth.md").read_text()
    for sabotage, _, game in CAUGHT:
        fault = sabotage.__name__.replace("_", " ")
        assert any(fault in line and game in line for line in page.splitlines()), (fault, game)
