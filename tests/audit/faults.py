"""Faults put into the code on purpose, each as a function that patches it in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest
import torch

from dpfl.client import training
from dpfl.client.dataset import ClientDatasets
from dpfl.client.task import ClientTask
from dpfl.gradients.clipped import ClippedGradients
from dpfl.privacy import Gaussian, Keyed, Ledger, Poisson, Release, SystemEntropy
from dpfl.privacy.accounting.events import Event
from dpfl.privacy.mechanisms.clips import clip
from dpfl.privacy.mechanisms.sampling import Sampling
from dpfl.privacy.queries.histogram import LabelQuery
from dpfl.privacy.queries.mean import MeanQuery
from dpfl.privacy.queries.metric import MetricQuery
from dpfl.run import prepare
from dpfl.server.aggregation import mean_update
from dpfl.server.aggregation.mean_update import MeanUpdate
from dpfl.server.coordinator import Coordinator

Sabotage = Callable[[pytest.MonkeyPatch], None]


def halve_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Release.stddev
    monkeypatch.setattr(Release, "stddev", lambda self, *rest: honest(self, *rest) / 2)


def drop_the_clip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clip, "shrink_factors", lambda norms, bound: norms.new_ones(norms.shape))


def reuse_a_noise_key(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Keyed.generator

    def same(self: Keyed, purpose: str, round: int = 0, client: int = 0) -> np.random.Generator:
        return honest(Keyed(self.seed), purpose, 0, client)

    monkeypatch.setattr(Keyed, "generator", same)


def let_the_last_bit_follow_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a batch of even size are larger by their last bit, as if other kernels had added
    them up.
    """
    honest = ClippedGradients.__call__

    def other(self: ClippedGradients, x: torch.Tensor, *rest: Any) -> Any:
        return honest(self, x if len(x) % 2 else x.nextafter(torch.full_like(x, torch.inf)), *rest)

    monkeypatch.setattr(ClippedGradients, "__call__", other)


def forget_a_debit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one of every task, or all of them where a task has one."""
    honest = Ledger._enter

    def forgetful(
        self: Ledger, run: str, release: str, event: Event, count: int, *rest: Any
    ) -> None:
        if count > 1:
            honest(self, run, release, event, count - 1, *rest)

    monkeypatch.setattr(Ledger, "_enter", forgetful)


def divide_by_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = training.private_steps

    def realised(
        gradients: Any, data: Any, steps: int, local: Any, release: Release, *rest: Any
    ) -> None:
        honest(gradients, data, steps, local, replace(release, divide_by_drawn=True), *rest)

    monkeypatch.setattr(training, "private_steps", realised)


def forget_the_noise_of_the_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def exact(self: MeanUpdate, replies: Any, randomness: Any) -> None:
        release = self._state.clients
        fraction = sum(reply.inside for reply in replies) / len(replies)
        self._state.clients = replace(release, clip=release.clip.adapt(fraction))

    monkeypatch.setattr(MeanUpdate, "_adapt_quantile", exact)


def shuffle_batches_for_poisson(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sample once an epoch, in batches of one size."""
    left: dict[int, list[int]] = {}

    def shuffled(
        self: Poisson, population: int, rng: np.random.Generator, turn: int = 0
    ) -> np.ndarray:
        size = max(1, round(self.rate * population))
        waiting = left.get(population, [])
        if len(waiting) < size:
            waiting = rng.permutation(population).tolist()
        left[population] = waiting[size:]
        return np.sort(waiting[:size])

    monkeypatch.setattr(Poisson, "draw", shuffled)


def use_one_batch_for_all_steps_of_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = training.private_steps

    def same(
        gradients: Any,
        data: Any,
        tau: int,
        local: Any,
        release: Release,
        generator: Any,
        *rest: Any,
    ) -> None:
        batch = release.sampling.draw(len(data), generator("batch"))
        once = replace(release, sampling=Always(batch, release.sampling))
        honest(gradients, data, tau, local, once, generator, *rest)

    monkeypatch.setattr(training, "private_steps", same)


@dataclass(frozen=True)
class Always:
    """A sampling that has been drawn. It says of itself what the honest one says."""

    batch: np.ndarray
    honest: Sampling

    def draw(self, population: int, rng: np.random.Generator, turn: int = 0) -> np.ndarray:
        return self.batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self.honest, name)


def halve_the_noise_of_the_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = MeanQuery.answer

    def halved(self: MeanQuery, *rest: Any) -> np.ndarray:
        return honest(replace(self, noise_multiplier=self.noise_multiplier / 2), *rest)

    monkeypatch.setattr(MeanQuery, "answer", halved)


def halve_the_noise_of_the_histogram(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = LabelQuery.answer

    def halved(self: LabelQuery, *rest: Any) -> np.ndarray:
        return honest(replace(self, noise_multiplier=(self.noise_multiplier or 0.0) / 2), *rest)

    monkeypatch.setattr(LabelQuery, "answer", halved)


def halve_the_noise_of_the_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = MetricQuery.answer

    def halved(self: MetricQuery, *rest: Any) -> np.ndarray:
        return honest(replace(self, noise_multiplier=self.noise_multiplier / 2), *rest)

    monkeypatch.setattr(MetricQuery, "answer", halved)


def halve_the_noise_of_the_slope(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for the sum of clipped gradients, of which a slope compares two."""
    honest = Release.stddev
    monkeypatch.setattr(
        Release,
        "stddev",
        lambda self, largest_weight=1.0: honest(self, min(largest_weight, 1.0)),
    )


def leave_weights_uncapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest client counts once, and larger ones as often as they are larger."""
    honest = mean_update.weighted_sum
    monkeypatch.setattr(
        mean_update,
        "weighted_sum",
        lambda replies, weights, size: honest(replies, weights / weights.min(), size),
    )


def clip_uploads_at_twice_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload then moves twice as far as its noise is for."""
    honest = training.clip_vector

    def wide(
        vector: torch.Tensor, clip: Any, *rest: Any, **options: Any
    ) -> tuple[torch.Tensor, bool]:
        return honest(vector, replace(clip, clip_norm=2 * clip.clip_norm), *rest, **options)

    monkeypatch.setattr(training, "clip_vector", wide)


def repeat_the_noise_within_a_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second half has that of the first."""
    honest = Gaussian.vector

    def twice(
        self: Gaussian, size: int, deviation: float, rng: np.random.Generator
    ) -> torch.Tensor:
        half = honest(self, (size + 1) // 2, deviation, rng)
        return torch.cat([half, half])[:size]

    monkeypatch.setattr(Gaussian, "vector", twice)


def repeat_the_noise_every_few_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Gaussian.vector

    def again(
        self: Gaussian, size: int, deviation: float, rng: np.random.Generator
    ) -> torch.Tensor:
        return honest(self, 1000, deviation, rng).repeat(size // 1000 + 1)[:size]

    monkeypatch.setattr(Gaussian, "vector", again)


def repeat_the_noise_in_every_step_of_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = training.private_steps

    def same(
        gradients: Any,
        data: Any,
        tau: int,
        local: Any,
        release: Release,
        generator: Any,
        *rest: Any,
    ) -> None:
        class Again(Release):
            def add_noise(
                self, total: torch.Tensor, rng: Any, *rest: Any, **options: Any
            ) -> torch.Tensor:
                return super().add_noise(total, generator("sample noise"), *rest, **options)

        parts = {part.name: getattr(release, part.name) for part in fields(release)}
        honest(gradients, data, tau, local, Again(**parts), generator, *rest)

    monkeypatch.setattr(training, "private_steps", same)


def repeat_the_noise_for_another_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shifted by some numbers, so that no two releases look alike."""
    honest = ClientTask.generator

    def same(self: ClientTask, randomness: Any) -> Callable[[str], np.random.Generator]:
        def generator(purpose: str) -> np.random.Generator:
            rng = honest(replace(self, client=0), randomness)(purpose)
            rng.bit_generator.random_raw(self.client)
            return rng

        return generator

    monkeypatch.setattr(ClientTask, "generator", same)


def repeat_the_noise_whatever_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Keyed.generator
    monkeypatch.setattr(
        Keyed, "generator", lambda self, *place: honest(replace(self, seed=0), *place)
    )


def make_fresh_noise_under_an_old_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is made again after a crash has other noise, and the ledger takes it for the same."""
    monkeypatch.setattr(Keyed, "generator", lambda self, *place: SystemEntropy().generator(*place))


def name_system_noise_as_if_it_could_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second release is then taken for the first, and not paid for."""
    monkeypatch.setattr(SystemEntropy, "repeatable", True)


def adapt_the_clip_before_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = MeanUpdate._add_noise

    def late(self: MeanUpdate, total: torch.Tensor, replies: int, randomness: Any) -> torch.Tensor:
        before = self._state.clients
        self._state.clients = replace(before, clip=before.clip.adapt(1.0))
        noisy = honest(self, total, replies, randomness)
        self._state.clients = before
        return noisy

    monkeypatch.setattr(MeanUpdate, "_add_noise", late)


def draw_cohorts_from_a_known_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Coordinator.next_request

    def known(self: Coordinator) -> Any:
        own, self._randomness = self._randomness, Keyed(0)
        try:
            return honest(self)
        finally:
            self._randomness = own

    monkeypatch.setattr(Coordinator, "next_request", known)


def prepare_a_system_run_with_a_known_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "SystemEntropy", lambda: Keyed(0))


def count_the_shares_of_lost_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server then adds less than the missing clients did not."""
    honest = Coordinator.aggregate

    def counting(self: Coordinator, replies: Any) -> None:
        averager = self._mean_update
        add_noise = averager._add_noise
        averager._add_noise = lambda total, good, randomness: add_noise(  # type: ignore[method-assign]
            total, len(replies), randomness
        )
        honest(self, replies)

    monkeypatch.setattr(Coordinator, "aggregate", counting)


def account_rows_for_persons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row is drawn, clipped and answered for by itself, and the ledger says that it is for
    persons.
    """
    honest = ClientDatasets.training
    monkeypatch.setattr(
        ClientDatasets, "training", lambda self, client: honest(self, client).as_rows
    )
