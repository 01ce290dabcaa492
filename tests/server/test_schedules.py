"""Releases that change: what a round has, what is accounted for, and what they are functions of."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dpfl.algorithms import fedavg_dp
from dpfl.errors import DpflError
from dpfl.privacy import Flat, Gaussian, Poisson, Release
from dpfl.privacy.mechanisms.noises.noise import FlooredGaussian
from dpfl.server.schedules import AdaptiveSchedule, DecaySchedule, release_of_client
from dpfl.server.steps.policy import RoundObservation, StepFacts
from tests.server.rounds import coordinator

FIRST = Release(Poisson(0.1), Flat(1.5), Gaussian(2.0))


def test_a_decay_has_the_levels_of_the_paper_and_its_noise_in_phases() -> None:
    plan = DecaySchedule(phases=4).for_rounds(20)
    releases = [plan.now(FIRST, round, {}) for round in range(20)]
    for round, release in enumerate(releases):
        assert release.clip.clip_norm == pytest.approx(1.5 * 0.3 ** (round / 20))
        assert release.noise_multiplier == pytest.approx(2.0 * 0.8 ** ((round - round % 5) / 20))
        assert release.stddev() == pytest.approx(release.noise_multiplier * release.clip.clip_norm)
        assert release == plan.least(FIRST, round)
    assert len({release.noise_multiplier for release in releases}) == 4


@given(rounds=st.integers(1, 60), phases=st.integers(1, 70))
def test_phases_never_have_less_noise_than_the_paper(rounds: int, phases: int) -> None:
    plan = DecaySchedule(phases=phases).for_rounds(rounds)
    for round in range(rounds):
        assert plan.least(FIRST, round).noise_multiplier >= 2.0 * 0.8 ** (round / rounds) * (
            1 - 1e-12
        )


def test_a_decay_beyond_its_rounds_is_refused() -> None:
    with pytest.raises(DpflError, match="none numbered 5"):
        DecaySchedule().for_rounds(5).now(FIRST, 5, {})


@pytest.mark.parametrize("wrong", [{"phases": 0}, {"clip": 0.0}, {"noise": 1.5}, {"clip": -1.0}])
def test_a_bad_decay_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(DpflError):
        DecaySchedule(**wrong)  # type: ignore[arg-type]


FACTS = StepFacts(
    None,
    rate=0.5,
    multiplier=2.0,
    clip=1.5,
    parameters=1000,
    batches=[10.0, 10.0],
    weights=[1.0, 1.0],
    energy=1000.0,
    divisors=[10.0, 10.0],
)


def seen(norm: float, seed: int = 0) -> RoundObservation:
    """A round of two clients whose gradients have this norm, with noise as stated."""
    generator = torch.Generator().manual_seed(seed)
    direction = torch.ones(1000) / 1000**0.5

    def update() -> Tensor:
        noise = torch.randn(3, 1000, generator=generator) * 2.0 * 1.5 / 10
        return -0.5 * (3 * norm * direction + noise.sum(0))

    return RoundObservation(FACTS, 0, 3, torch.zeros(1000), {0: update(), 1: update()})


def remembered(
    losses: list[float], norm: float = 4.0, schedule: AdaptiveSchedule | None = None
) -> dict[str, Tensor]:
    memory: dict[str, Tensor] = {}
    for loss in losses:
        memory = (schedule or AdaptiveSchedule()).learn(
            seen(norm), lambda _, loss=loss: loss, memory
        )
    return memory


def test_a_clip_is_alpha_times_the_norm() -> None:
    memory = remembered([1.0], 3.0)
    for alpha in (0.5, 2.0):
        plan = AdaptiveSchedule(alpha=alpha)
        assert plan.for_client(
            plan.now(FIRST, 1, memory), 0, memory
        ).clip.clip_norm == pytest.approx(alpha * float(memory["levels"][0]))


@pytest.mark.parametrize("norm", [2.0, 8.0])
def test_a_level_follows_the_norm_without_its_noise(norm: float) -> None:
    memory = remembered([1.0], norm)
    assert float(memory["levels"].mean()) == pytest.approx(norm, rel=0.05)
    release = AdaptiveSchedule().for_client(AdaptiveSchedule().now(FIRST, 1, memory), 1, memory)
    assert release.clip.clip_norm == pytest.approx(float(memory["levels"][1]))
    assert release.stddev() == pytest.approx(2.0 * release.clip.clip_norm)


def test_every_client_has_the_clip_of_its_own_gradients_and_its_noise_is_taken_off_by_it() -> None:
    """The second round's noise is that of each client's own clip; by hand, from an update along one
    direction.
    """
    schedule, one = AdaptiveSchedule(), seen(4.0)
    memory = schedule.learn(
        replace(one, updates={0: one.updates[0], 1: 3 * one.updates[1]}), lambda _: 1.0, {}
    )
    own = [schedule.for_client(schedule.now(FIRST, 1, memory), client, memory) for client in (0, 1)]
    assert own[1].clip.clip_norm > 2.5 * own[0].clip.clip_norm
    still = replace(one, updates={client: torch.full((1000,), 0.3) for client in (0, 1)})
    again = schedule.learn(still, lambda _: 1.0, memory)
    square = (0.3 / (0.5 * 3)) ** 2 * 1000
    for client in (0, 1):
        noise = (2.0 * own[client].clip.clip_norm / 10) ** 2 * 1000 / 3
        assert float(again["levels"][client]) == pytest.approx(
            max(square - noise, 0.0) ** 0.5, abs=1e-4
        )


def test_a_level_stays_within_a_span_of_its_start() -> None:
    for norm, level in ((0.0, 0.15), (400.0, 15.0), (float("nan"), 1.5)):
        memory = remembered([1.0]) | {"levels": torch.tensor([4.0, norm])}
        assert AdaptiveSchedule().for_client(FIRST, 1, memory).clip.clip_norm == pytest.approx(
            level
        )


def test_noise_falls_in_the_round_after_a_loss_has_fallen_three_times_running() -> None:
    schedule = AdaptiveSchedule(beta=0.9)
    for losses, falls in (
        ([4, 3, 2], 0),
        ([4, 3, 2, 1], 1),
        ([4, 3, 2, 1, 0], 2),
        ([4, 3, 2, 3, 2, 1], 0),
    ):
        memory = remembered([float(loss) for loss in losses], schedule=schedule)
        release = schedule.for_client(schedule.now(FIRST, len(losses), memory), 0, memory)
        assert release.noise is not None
        assert release.noise.noise_multiplier == pytest.approx(2.0 * 0.9**falls)


def test_the_noise_of_a_client_follows_the_loss_of_its_own_model() -> None:
    schedule, memory, losses = (
        AdaptiveSchedule(beta=0.9),
        dict[str, Tensor](),
        iter([9.0, 1.0, 8.0, 2.0, 7.0, 3.0, 6.0, 4.0]),
    )
    for _ in range(4):
        memory = schedule.learn(seen(4.0), lambda _: next(losses), memory)
    own = [
        schedule.for_client(schedule.now(FIRST, 4, memory), client, memory).noise
        for client in (0, 1)
    ]
    assert [noise.noise_multiplier for noise in own if noise] == pytest.approx([1.8, 2.0])
    asked: list[Tensor] = []
    one = seen(4.0)
    schedule.learn(one, lambda model: float(asked.append(model) or 1.0), {})
    assert all(
        torch.equal(model, one.vector + one.updates[client]) for client, model in enumerate(asked)
    )


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.integers(1, 12))
def test_a_round_is_counted_as_the_least_noise_that_it_could_have(
    losses: list[float], stride: int
) -> None:
    """Whatever was released: the event is a function of the round alone, and never of less noise
    than was drawn.
    """
    schedule, memory = AdaptiveSchedule(beta=0.9, stride=stride), dict[str, Tensor]()
    one = RoundObservation(
        FACTS, 0, 1, torch.zeros(1000), {0: torch.ones(1000), 1: torch.ones(1000)}
    )
    for loss in losses:
        memory = schedule.learn(one, lambda _, loss=loss: loss, memory)
    release = schedule.for_client(schedule.now(FIRST, len(losses), memory), 0, memory)
    assert release.event(1) == schedule.least(FIRST, len(losses)).event(1)
    assert release.noise is not None
    assert release.noise.noise_multiplier >= release.noise_multiplier - 1e-12
    kinds = {schedule.least(FIRST, round).noise_multiplier for round in range(len(losses))}
    assert len(kinds) <= 2 + len(losses) // stride


def test_equal_releases_give_an_equal_level() -> None:
    schedule = AdaptiveSchedule()
    one, other = (schedule.learn(seen(3.0), lambda _: 1.0, {}) for _ in range(2))
    assert all(torch.equal(one[name].nan_to_num(), other[name].nan_to_num()) for name in one)
    assert not torch.equal(
        one["levels"], schedule.learn(seen(3.0, seed=1), lambda _: 1.0, {})["levels"]
    )


def test_a_release_of_a_client_that_costs_more_than_that_of_the_round_is_refused() -> None:
    class Less(AdaptiveSchedule):
        def for_client(
            self, release: Release, client: int, memory: Mapping[str, Tensor]
        ) -> Release:
            return release.with_noise(0.5)

    with pytest.raises(DpflError, match="must charge each round what it announced"):
        release_of_client(Less(), FIRST, 0, {})
    assert release_of_client(None, FIRST, 0, {}) is FIRST


@pytest.mark.parametrize(
    "wrong", [{"alpha": 0.0}, {"beta": 1.1}, {"patience": 0}, {"span": 0.5}, {"stride": 0}]
)
def test_a_bad_follower_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(DpflError, match="needs alpha"):
        replace(AdaptiveSchedule(), **wrong)  # type: ignore[arg-type]


class Lying(DecaySchedule):
    """Says one multiplier beforehand, and has another when the round comes."""

    def now(self, first: Release, round: int, memory: Any) -> Release:
        return self.made(first, round)


LIES = {
    "less noise than it said": lambda self, first, round: first.with_noise(0.5),
    "a floor that rises with what was released": lambda self, first, round: replace(
        first, noise=FlooredGaussian(9.0, 8.0)
    ),
    "another draw": lambda self, first, round: replace(
        self.least(first, round), sampling=Poisson(0.9)
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_fault_a_schedule_whose_round_is_not_counted_as_it_said_beforehand(lie: str) -> None:
    schedule = type("Lies", (Lying,), {"made": LIES[lie]})(rounds=100)
    with pytest.raises(DpflError, match="what it announced"):
        coordinator(replace(fedavg_dp(noise_multiplier=1.0), schedule=schedule)).next_request()
    honest = coordinator(
        replace(fedavg_dp(noise_multiplier=1.0), schedule=DecaySchedule(rounds=100))
    )
    assert honest.next_request() is not None
