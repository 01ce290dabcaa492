"""Canaries: samples with the worst gradient that a clip allows, given to real clients."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from dpfl.algorithms import Algorithm
from dpfl.audit.measurements.one_release import population_for
from dpfl.audit.sums import beside, room
from dpfl.audit.test_bed import TestBed, linear
from dpfl.client.noise_placement import NoisePlacement
from dpfl.client.runner import ClientRunner
from dpfl.client.task import ClientTask
from dpfl.engines import one_thread
from dpfl.privacy import All, Keyed, Randomness, Release

DECLARED_SIZE = 16_000
"""A declared size so large that steps hardly move the model, so that a canary's gradient does not
change. A node sums no larger batches of persons, or where products cancel (`most_units`).
"""

LITTLE = 1e-7
"""A noise multiplier so small that the noise changes nothing."""

INPUTS = 8
WITH, WITHOUT = 0, 1


@dataclass(frozen=True)
class CanarySite:
    """Client 0 has the canary and client 1 has not; the server sends the same model every time.

    Attributes:
        algorithm: The system, for this model.
        test_bed: The two clients.
        vector: The model that the server sends.
    """

    algorithm: Algorithm
    test_bed: TestBed
    vector: Tensor

    @classmethod
    def on(cls, test_bed: TestBed, algorithm: Algorithm) -> CanarySite:
        """Builds the two clients for an algorithm.

        Args:
            test_bed: The clients and their data.
            algorithm: The system.

        Returns:
            The clients.
        """
        flat = test_bed.flat()
        return cls(algorithm.for_model(flat.layout), test_bed.protecting(algorithm), flat.read())

    @property
    def steps(self) -> int:
        """Local steps per round."""
        return 1 if self.algorithm.steps.adaptive else self.algorithm.steps.total(1)

    @property
    def rate(self) -> float:
        """Probability that a step draws the canary."""
        release = self.algorithm.samples
        if self.algorithm.placement is not NoisePlacement.EVERY_STEP or release is None:
            return 1.0
        samples = len(self.test_bed.clients[WITH])
        return release.sampling.expected_size(samples) / samples

    def task(self, round: int, client: int) -> ClientTask:
        """Builds the task of one client in one round.

        Args:
            round: Number of the round.
            client: The client.

        Returns:
            The task.
        """
        algorithm = self.algorithm
        task = ClientTask(
            round,
            client,
            self.steps,
            algorithm.local,
            algorithm.clients,
            algorithm.samples,
            update=algorithm.updates,
        )
        if algorithm.noise_shares is None or algorithm.samples is None:
            return task
        return replace(
            task,
            secure_sum=room(
                algorithm.samples.clip.clip_norm * self.test_bed.declared_sizes[client],
                algorithm.noise_shares,
            ),
        )

    def node(self, randomness: Randomness) -> ClientRunner:
        """Builds the runner of both clients.

        Args:
            randomness: Source of all draws.

        Returns:
            The runner.
        """
        return ClientRunner(self.test_bed.context(randomness))

    def signal(self) -> np.ndarray:
        """Measures how far the canary moves the update if every step draws it.

        Returns:
            The difference of the two updates without noise.
        """
        node = self.node(Keyed(0))
        try:
            updates = [
                self.update(node, silent(self.task(0, client))) for client in (WITH, WITHOUT)
            ]
        finally:
            node.close()
        return updates[WITH] - updates[WITHOUT]

    def update(self, node: ClientRunner, task: ClientTask) -> np.ndarray:
        """Runs a task.

        Args:
            node: The runner.
            task: The task.

        Returns:
            The update as the server sees it. Under secure aggregation it is that of the sum.
        """
        reply = node.work(task, self.vector)
        if (
            task.summed_release
            and task.summed_release.noise_shares
            and task.secure_sum
            and reply.numbers is not None
        ):
            rng = node.context.randomness.generator("the shares of others", task.round, task.client)
            integer_sum = task.summed_release.integer_sum(
                task.secure_sum.bound, task.secure_sum.clients
            )
            total = beside(integer_sum, task.summed_release.noise_shares, reply.numbers, rng)
            return self._as_update(task, task.summed_release, total)
        assert reply.update is not None
        return reply.update.numpy().copy()  # its memory may be used again

    def _as_update(self, task: ClientTask, release: Release, total: np.ndarray) -> np.ndarray:
        """Computes the update of one client whose step had this sum."""
        vector, size = (
            release.inward(torch.from_numpy(total)).numpy(),
            self.test_bed.declared_sizes[task.client],
        )
        update = np.zeros(len(self.vector))
        update[: len(vector)] = -task.local.optimiser.rate * vector / release.divisor_for(size)
        return update

    def play_rounds(self, node: ClientRunner, client: int, first: int, rounds: int) -> np.ndarray:
        """Runs some rounds of one client.

        Args:
            node: The runner.
            client: The client.
            first: Number of the first round.
            rounds: Number of rounds.

        Returns:
            What the server sees: (rounds, parameters).
        """
        with one_thread():
            return np.stack(
                [self.update(node, self.task(first + number, client)) for number in range(rounds)]
            )


def silent(task: ClientTask) -> ClientTask:
    """Removes the noise from a task. If the noise is in the steps, every step draws all samples.

    Args:
        task: The task.

    Returns:
        The task without noise.
    """
    samples, upload = task.samples, task.update
    if noisy := task.placed_release.release_at(NoisePlacement.EVERY_STEP):
        everyone = replace(noisy, sampling=All())
        samples = (
            everyone.with_noise(LITTLE) if noisy.noise_shares else replace(everyone, noise=None)
        )
    return replace(task, samples=samples, update=replace(upload, noise=None) if upload else None)


def one_canary(algorithm: Algorithm) -> CanarySite:
    """Builds a client with one canary, and one without it.

    The canary is a sample with a large constant image. If neighbours replace a sample, the other
    client has the same image with another label. With persons it is a person with such rows. If
    whole clients are protected, all samples of the client are such.

    Args:
        algorithm: The system.

    Returns:
        The two clients.
    """
    scale = 20.0 * _level(algorithm)
    count = _sample_count(algorithm)
    x = torch.zeros(count + 1, INPUTS)
    x[:2], y = scale, torch.zeros(count + 1, dtype=torch.int64)
    y[1] = 1
    rest = torch.arange(2, count + 1)
    rows = [torch.cat([torch.tensor([first]), rest]) for first in (0, 1)]
    if algorithm.protects_client:
        x, y = torch.full((4, INPUTS), 1e3 * scale), torch.tensor([0, 0, 1, 1])
        rows = [torch.tensor([0, 1]), torch.tensor([2, 3])]
    elif algorithm.placement is NoisePlacement.EVERY_STEP and not _replaces(algorithm):
        rows[WITHOUT] = rest
    return CanarySite.on(TestBed(linear(INPUTS), x, y, 2, rows, (DECLARED_SIZE,) * 2), algorithm)


def many_canaries(algorithm: Algorithm, count: int, inside: np.ndarray) -> CanarySite:
    """Builds a client with some of many canaries, each of which has a pixel of its own.

    Args:
        algorithm: The system.
        count: Number of canaries.
        inside: Which canaries client 0 has. Client 1 has all of them.

    Returns:
        The two clients.
    """
    x, y = 20.0 * _level(algorithm) * torch.eye(count), torch.zeros(count, dtype=torch.int64)
    rows = (torch.from_numpy(np.flatnonzero(inside)), torch.arange(count))
    return CanarySite.on(TestBed(linear(count), x, y, 2, rows, (DECLARED_SIZE,) * 2), algorithm)


def _level(algorithm: Algorithm) -> float:
    release = algorithm.samples or algorithm.updates
    return release.clip.clip_norm if release else 1.0


def _replaces(algorithm: Algorithm) -> bool:
    return bool(algorithm.samples and algorithm.samples.sampling.constant_size)


def _sample_count(algorithm: Algorithm) -> int:
    """Chooses how many samples a client has: one batch where sampling gains nothing."""
    if algorithm.samples is None or algorithm.samples.sampling.nominal_size is None:
        return 3
    count = population_for(algorithm.samples)
    return count // 2 if algorithm.placement is NoisePlacement.CLIENT_UPDATE else count
