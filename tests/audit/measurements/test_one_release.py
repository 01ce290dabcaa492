"""One release with a canary in it or not: tight for plain noise, and above the claim where the
noise is too little.
"""

import numpy as np
import pytest
import torch

from dpfl.algorithms import dp_fedavg, dp_sgd_wav
from dpfl.audit import AuditSettings, audit, distinguish, one_release
from dpfl.audit.bounds import epsilon_of
from dpfl.audit.measurements.one_release import ENDS, ReleaseGame, directions, population_for
from dpfl.privacy import (
    All,
    FixedSize,
    Flat,
    Gaussian,
    Keyed,
    PerLayer,
    Poisson,
    PoissonSize,
    Quantile,
    Release,
    accountant,
)
from dpfl.privacy.accounting.accountant import default_accountant
from dpfl.privacy.mechanisms.clips.clip import Clip
from dpfl.privacy.mechanisms.noises.haar_release import HaarClip, HaarNoise
from dpfl.privacy.mechanisms.sampling import Sampling
from tests.audit.systems import SOUND, system


def proven(release: Release, population: int) -> float:
    event = release.event(population)
    return accountant(default_accountant(event)).epsilon({event: 1}, 1e-5)


def test_on_plain_gaussian_noise_the_game_reaches_most_of_what_is_proven() -> None:
    measured = one_release(Release(All(), Flat(1.0), Gaussian(1.0)), 1e-5, 100_000, 0.95, Keyed(0))
    assert 0.7 * 4.377178 <= measured.epsilon <= 4.377178
    assert measured.confidence == 0.95


@pytest.mark.parametrize("clip", [Flat(0.3), PerLayer(2.0), Quantile(1.0, count_noise=1.0)])
@pytest.mark.parametrize("sampling", [All(), Poisson(0.3), PoissonSize(3), FixedSize(3)])
def test_clips_and_samplings_are_measured_near_their_proof_and_never_above(
    clip: Clip, sampling: Sampling
) -> None:
    release = Release(sampling, clip, Gaussian(0.8))
    measured = one_release(release, 1e-5, 4000, 0.95, Keyed(1))
    truth = proven(release, population_for(release))
    assert measured.epsilon <= truth
    assert measured.epsilon > (0.3 if isinstance(sampling, FixedSize) else 0.5) * truth, (
        "RDP is not tight for a fixed size"
    )


def test_noise_shared_by_clients_adds_up() -> None:
    release = Release(All(), Flat(1.0), Gaussian(1.0), shared_by=5)
    assert 4.0 < one_release(release, 1e-5, 20_000, 0.95, Keyed(0)).epsilon < 4.378


def test_the_constant_vector_breaks_the_published_haar_clip_as_far_as_the_trials_show() -> None:
    """Score N(0, 1) or N(m, 1) with m = 8: no errors, so the bound is that of the trials alone."""
    release = Release(All(), HaarClip(1.0, "coefficients"), HaarNoise(1.0)).for_model((8,))
    ones = torch.ones(8)
    clipped = ones * release.clip.factors(release.clip.norms(ones[None]))

    def mechanism(within: bool, trials: int, rng: np.random.Generator) -> np.ndarray:
        total = clipped if within else torch.zeros(8)
        return np.stack([release.add_noise(total, rng).numpy() for _ in range(trials)])

    scores = mechanism(True, 500, np.random.default_rng(0)).sum(1)
    assert scores.mean() == pytest.approx(8.0, abs=0.2)
    measured = distinguish(
        mechanism, 1e-5, 1000, 0.95, Keyed(0), score=lambda released: released.sum(1)
    )
    assert measured.epsilon == pytest.approx(5.60, abs=0.01)
    assert measured.epsilon > epsilon_of(1.0, 1e-5)


def test_published_wavelets_are_refuted_and_sound_ones_are_not() -> None:
    games = ["one release"]
    assert (
        audit(dp_sgd_wav("published"), AuditSettings(trials=4000), games=games).verdict == "refuted"
    )
    sound = audit(dp_sgd_wav("sound"), AuditSettings(trials=4000), games=games)
    assert sound.verdict == "consistent"
    assert sound.findings[0].measured > 0.3 * sound.findings[0].proven


@pytest.mark.parametrize("name", SOUND)
def test_ten_audits_of_a_sound_system_stay_below_what_is_proven(name: str) -> None:
    made = system(name, "sound")
    for seed in range(10):
        finding = audit(made, AuditSettings(trials=600, seed=seed), games=["one release"]).findings[
            0
        ]
        assert finding.verdict != "broken", (seed, finding)
        assert finding.measured is not None
        assert finding.measured <= finding.proven


def test_the_worst_canary_of_a_flat_clip_is_any_and_of_haar_noise_a_searched_one() -> None:
    game = ReleaseGame(Release(All(), Flat(2.0), Gaussian(1.0)))
    lengths = {
        name: game.canary(direction)[0].norm().item() for name, direction in directions().items()
    }
    assert lengths == {name: pytest.approx(2.0, rel=1e-4) for name in lengths}
    haar = ReleaseGame(Release(All(), Flat(1.0), HaarNoise(1.0)).for_model(ENDS))
    assert haar.release.noise_multiplier == pytest.approx(1 / 4)
    assert one_release(haar.release, 1e-5, 4000, 0.95, Keyed(0)).mu == pytest.approx(4.0, rel=0.15)


def test_a_quantile_clip_pays_for_its_count_as_well() -> None:
    made = dp_fedavg(clipping="quantile", noise_multiplier=1.0, count_noise=0.6)
    measured = one_release(made.clients, 1e-5, 20_000, 0.95, Keyed(0))
    assert 4.0 < measured.epsilon <= 4.377178
