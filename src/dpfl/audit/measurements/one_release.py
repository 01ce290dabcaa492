"""Measures one release: a canary is in or out, and is the worst for this clip and noise."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from dpfl.audit.bounds import MeasuredEpsilon, SampledGaussian
from dpfl.audit.measurements.distinguish import (
    PILOT,
    Detector,
    Mechanism,
    detector,
    distinguish,
    distinguish_gaussian,
    whiten,
)
from dpfl.audit.sums import clients_for, server_view
from dpfl.client.task import ClientReply
from dpfl.errors import DpflError
from dpfl.privacy import Randomness, Release
from dpfl.privacy.mechanisms.clips.vector_clipping import clip_vector
from dpfl.privacy.mechanisms.noises.matrix_release import BandedNoise
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.server.aggregation.aggregate import correlated_sum, noisy_inside_fraction
from dpfl.server.aggregation.round_sum import RoundSum

NAMES = ("first.weight", "second.weight")
ENDS = (8, 16)
"""Two layers of eight numbers: enough for every clip and every noise to show what it does."""

LEAST_NOISE, OVERFITTING = "the direction of least noise", 1.2
"""The name of a direction that is searched for, and how much better than others it must be. On the
draws of the search it looks better than it is.
"""

FAR = 1e3
"""A canary's norm before it is clipped, in clip norms."""


@dataclass(frozen=True)
class ReleaseGame:
    """A release of one unit, beside others that the adversary knows.

    Attributes:
        release: The release, for a small model.
        population: Number of units from which it samples.
    """

    release: Release
    population: int = 1

    def __post_init__(self) -> None:
        if not self.release.has_noise:
            raise DpflError("A release without noise needs no game: it hides nothing.")

    @property
    def replaced(self) -> bool:
        """Whether neighbours have another unit in the canary's place, not none."""
        return self.release.is_update or self.release.sampling.constant_size

    @property
    def counts_units(self) -> bool:
        """Whether a noisy count of the units inside the clip is released beside the vector."""
        return self.release.clip.follows_count

    def canary(self, direction: Tensor) -> tuple[Tensor, bool]:
        """Clips the canary with the code that clips in a run.

        Args:
            direction: Direction of the canary.

        Returns:
            Its vector after the clip, and whether it was inside the clip norm.
        """
        unit = direction / direction.norm()
        bound = self.release.sample_bound
        if bound is not None:  # a sample moves the update by so much, whatever the clip
            return unit * bound / 2, True
        return clip_vector(
            FAR * self.release.clip.clip_norm * unit, self.release.clip, NAMES, (0, *ENDS)
        )

    def mechanism(self, direction: Tensor, certain: bool = False) -> Mechanism:
        """Builds the release with this canary.

        Args:
            direction: Direction of the canary.
            certain: Whether to play on the condition that the sampling draws the canary.

        Returns:
            A function that draws releases.
        """
        vector, inside = self.canary(direction)
        return partial(_draw_releases, self, vector, inside, certain)

    def movement(self, direction: Tensor) -> np.ndarray:
        """Computes how far the canary moves the release once it is drawn.

        Args:
            direction: Direction of the canary.

        Returns:
            The difference of the two worlds without noise.
        """
        vector, inside = self.canary(direction)
        if self.release.noise_shares:
            return self.release.into_sum(vector, inside).double().numpy()
        count = [inside - 0.5] if self.counts_units else []
        once = (2 if self.replaced else 1) * np.array([*vector.tolist(), *count])
        return np.concatenate([once * turn for turn in self.turns()])

    def turns(self) -> list[bool]:
        """Lists the rounds of the release in which the canary takes part.

        Returns:
            One entry per round: a single one, or all rounds of a run with correlated noise.
        """
        noise = self.release.banded_noise
        if noise is None:
            return [True]
        turns = self.release.sampling.turns(self.population)
        return [round % turns == 0 for round in range(noise.rounds)]


def population_for(release: Release) -> int:
    """Chooses a number of units that a release can sample from.

    Args:
        release: The release.

    Returns:
        Twice a fixed or expected size, else 1.
    """
    size = release.sampling.nominal_size
    return 1 if size is None else 2 * size


def _draw_releases(
    game: ReleaseGame,
    vector: Tensor,
    inside: bool,
    certain: bool,
    within: bool,
    trials: int,
    rng: np.random.Generator,
) -> np.ndarray:
    if game.release.banded_noise:
        return _draw_banded(game, game.release.banded_noise, vector * float(within), trials, rng)
    sampling = game.release.sampling
    takes_part = np.array(
        [certain or 0 in sampling.draw(game.population, rng) for _ in range(trials)]
    )
    signs = takes_part * (1.0 if within else -1.0 if game.replaced else 0.0)
    if game.release.noise_shares:
        return _draw_sums(
            game.release,
            game.release.noise_shares,
            np.outer(signs, game.release.into_sum(vector, inside)),
            rng,
        )
    totals = torch.from_numpy(signs).float()[:, None] * vector
    sums = _add_noise(game.release, totals, rng)
    if not game.counts_units:
        return sums.numpy()
    counts = [_count(game.release, sign, inside, rng) for sign in signs]
    return np.column_stack([sums.numpy(), counts])


def _draw_banded(
    game: ReleaseGame, noise: BandedNoise, vector: Tensor, trials: int, rng: np.random.Generator
) -> np.ndarray:
    """Simulates all rounds of a run with noise that later rounds take back, with one row per
    trial.
    """
    if not _at_once(game.release) and trials > 1:
        return np.concatenate([_draw_banded(game, noise, vector, 1, rng) for _ in range(trials)])
    past, releases = torch.empty(0, trials * len(vector)), []
    for turn in game.turns():
        noisy, past = correlated_sum(
            (vector * float(turn)).repeat(trials), noise, game.release, past, rng
        )
        releases.append(noisy.view(trials, -1))
    return torch.cat(releases, dim=1).numpy()


def _count(release: Release, sign: float, inside: bool, rng: np.random.Generator) -> float:
    """Computes the noisy sum of b - 1/2 that goes with the vector. A canary that replaces another
    says the opposite.
    """
    replies = [ClientReply(0, inside=inside == (sign > 0))] if sign else []
    return noisy_inside_fraction(replies, release, 1.0, rng)


def _draw_sums(
    release: Release, noise_shares: NoiseShares, totals: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Simulates each trial as the server sees it in a secure sum."""
    bound = RoundSum.of_updates(release, noise_shares.survivors).bound
    whole = release.integer_sum(bound, clients_for(noise_shares))
    return server_view(whole, noise_shares, totals.ravel(), rng).reshape(totals.shape)


def _at_once(release: Release) -> bool:
    """Says whether all trials can be noised as one long vector."""
    assert release.noise is not None
    return release.noise_shares is not None or release.noise.by_coordinate


def _add_noise(release: Release, totals: Tensor, rng: np.random.Generator) -> Tensor:
    """Adds noise to each row. Independent noise can be added to all rows as one long vector."""
    shares = release.shared_by or 1
    if _at_once(release):
        once = totals.flatten()
        for _ in range(shares):
            once = release.add_noise(once, rng, share=1 / shares)
        return once.view_as(totals)
    rows = []
    for row in totals:
        for _ in range(shares):
            row = release.add_noise(row, rng, share=1 / shares)
        rows.append(row)
    return torch.stack(rows)


def directions() -> dict[str, Tensor]:
    """Lists canaries that are the worst for some clip.

    Returns:
        Their directions by name.
    """
    size = ENDS[-1]
    alternating = torch.ones(size)
    alternating[1::2] = -1
    return {
        "the constant vector": torch.ones(size),
        "the alternating vector": alternating,
        "one number": torch.eye(size)[0],
        "one layer": (torch.arange(size) < ENDS[0]).float(),
    }


def worst(game: ReleaseGame, randomness: Randomness, trials: int) -> tuple[str, Tensor, Detector]:
    """Finds the canary that is furthest from its absence for this noise.

    Args:
        game: The game.
        randomness: Source of pilot draws, which count for nothing else.
        trials: Number of trials of the game.

    Returns:
        Name and direction of the canary, and the detector for it.
    """
    rng = randomness.generator("one release pilot")
    outs = game.mechanism(torch.ones(ENDS[-1]), certain=True)(
        False, max(300, int(PILOT * trials)), rng
    )
    canaries = directions() | {LEAST_NOISE: _least_noise(outs[:, : ENDS[-1]])}
    apart = {
        name: whiten(outs, game.movement(direction))[1] for name, direction in canaries.items()
    }
    apart[LEAST_NOISE] /= OVERFITTING
    name = max(apart, key=lambda name: apart[name])
    movement = game.movement(canaries[name])
    return (
        name,
        canaries[name],
        detector(outs, movement, -movement / 2 if game.replaced else np.zeros_like(movement)),
    )


def _least_noise(outs: np.ndarray) -> Tensor:
    return torch.from_numpy(np.linalg.eigh(np.cov(outs, rowvar=False))[1][:, 0]).float()


def one_release(
    release: Release,
    delta: float,
    trials: int,
    confidence: float,
    randomness: Randomness,
    population: int | None = None,
) -> MeasuredEpsilon:
    """Measures a lower bound on the epsilon of one release.

    There are two bounds that hold together, and the larger one counts. One assumes nothing and
    includes the sampling. The other measures mu on the condition that the canary is drawn, if the
    noise is Gaussian in every direction, and computes what the sampling makes of it.

    Args:
        release: The release.
        delta: Delta of the guarantee.
        trials: Number of draws in each world.
        confidence: Confidence of the bound.
        randomness: Source of the draws.
        population: Number of units from which the release samples.

    Returns:
        The bound.
    """
    game = ReleaseGame(release.for_model(ENDS), population or population_for(release))
    trials = trials if _at_once(game.release) else trials // 4  # drawn a vector at a time
    name, direction, score = worst(game, randomness, trials)
    each = 1 - (1 - confidence) / 2
    free = distinguish(
        game.mechanism(direction), delta, trials, each, randomness, score, "one release"
    )
    bounds = [free]
    if game.release.noise is not None and game.release.noise.gaussian:
        certain = game.mechanism(direction, certain=True)
        sampled_epsilon = partial(_sampled_epsilon, game, delta=delta)
        bounds.append(
            distinguish_gaussian(
                certain, score, delta, trials, each, randomness, sampled_epsilon, "one release"
            )
        )
    best = max(bounds, key=lambda bound: bound.epsilon)
    return MeasuredEpsilon(
        best.epsilon, confidence, 2 * trials, f"{best.how}; canary: {name}", bounds[-1].mu
    )


def _sampled_epsilon(game: ReleaseGame, mu: float, delta: float) -> float:
    """Computes epsilon for this sampling, where a canary that is drawn moves the noise by mu."""
    sampling = game.release.sampling
    expected_size = sampling.expected_size(game.population)
    rate = expected_size / game.population if sampling.by_chance else 1.0
    return SampledGaussian(mu, rate, sampling.constant_size).epsilon(delta)
