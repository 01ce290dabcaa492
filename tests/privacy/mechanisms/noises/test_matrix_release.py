"""Correlated noise as a part of a release: a run is one Gaussian event, and its sums have the noise
that it needs.
"""

import math

import dp_accounting as dp
import numpy as np
import pytest
import torch

from dpfl.errors import DpflError
from dpfl.privacy import All, Flat, Gaussian, Release
from dpfl.privacy.mechanisms.noises.matrix_release import BandedNoise
from dpfl.privacy.mechanisms.noises.noise import Uncalibrated
from dpfl.privacy.mechanisms.sampling import Cyclic
from dpfl.server.aggregation.aggregate import correlated_sum

ROUNDS, TURNS, CLIENTS = 12, 4, 8


def release(bands: int | None = None, multiplier: float = 1.5, rounds: int = ROUNDS) -> Release:
    return Release(Cyclic(CLIENTS // TURNS), Flat(0.5), BandedNoise(multiplier, bands)).for_rounds(
        rounds, CLIENTS
    )


def sums(made: Release, totals: torch.Tensor, seed: int = 0) -> torch.Tensor:
    """The noisy sums of all rounds, as a server makes them."""
    rng, past, found = np.random.default_rng(seed), totals.new_empty(0, totals.shape[1]), []
    for total in totals:
        noisy, past = correlated_sum(total, made.noise, made, past, rng)
        found.append(noisy)
    return torch.stack(found)


def test_a_run_is_one_gaussian_event() -> None:
    assert release().event(CLIENTS) == dp.GaussianDpEvent(1.5)
    assert release().whole_run
    assert not Release(All(), Flat(1.0), Gaussian(1.0)).whole_run


def test_clients_take_turns_and_every_one_has_its_own() -> None:
    sampling, rng = Cyclic(2), np.random.default_rng(0)
    drawn = [sampling.draw(9, rng, turn).tolist() for turn in range(8)]
    assert sampling.turns(9) == 4
    assert drawn[:4] == drawn[4:]
    assert sorted(client for group in drawn[:4] for client in group) == list(range(9))
    assert sampling.expected_size(9) == pytest.approx(9 / 4)
    with pytest.raises(DpflError, match="cannot be made of 1"):
        sampling.turns(1)
    with pytest.raises(DpflError, match="at least 1"):
        Cyclic(0)


def test_the_noise_of_all_rounds_times_c_is_white_with_the_stated_deviation() -> None:
    made = release()
    size = 20_000
    noise = sums(made, torch.zeros(ROUNDS, size))
    root = made.noise.root
    c = np.zeros((ROUNDS, ROUNDS))
    for k, coefficient in enumerate(root.coefficients):
        c += coefficient * np.eye(ROUNDS, k=-k)
    white = torch.from_numpy(c).float() @ noise
    covariance = (white @ white.T / size).numpy()
    wanted = (1.5 * 0.5 * made.noise.sensitivity) ** 2
    assert np.allclose(covariance, wanted * np.eye(ROUNDS), atol=0.06 * wanted)


@pytest.mark.parametrize("bands", [1, 2, 4])
def test_one_client_moves_c_x_by_no_more_than_is_stated_and_reaches_it(bands: int) -> None:
    """A client that adds its clip in every round of its turn: what the Gaussian event is counted
    for.
    """
    made = release(bands)
    c = sum(
        coefficient * np.eye(ROUNDS, k=-k)
        for k, coefficient in enumerate(made.noise.root.coefficients)
    )
    for client in range(TURNS):
        x = np.zeros(ROUNDS)
        x[client::TURNS] = 1.0
        moved = float(np.linalg.norm(c @ x))
        assert moved <= made.noise.sensitivity + 1e-9
        if client == 0:
            assert moved == pytest.approx(made.noise.sensitivity)


def test_one_band_is_independent_noise_for_every_participation() -> None:
    made = release(bands=1)
    assert made.noise.sensitivity == pytest.approx(math.sqrt(ROUNDS / TURNS))
    noise = sums(made, torch.zeros(ROUNDS, 5000))
    assert float(torch.corrcoef(noise)[~torch.eye(ROUNDS, dtype=torch.bool)].abs().max()) < 0.08


def test_what_is_left_of_the_noise_in_the_last_model_is_less_than_with_independent_noise() -> None:
    independent, banded = (
        sums(release(bands), torch.zeros(ROUNDS, 5000)).sum(0).std() for bands in (1, None)
    )
    assert float(banded) < 0.8 * float(independent)


def test_the_sums_are_those_of_the_clients_under_the_noise() -> None:
    totals = torch.arange(float(ROUNDS))[:, None].expand(-1, 7).clone()
    difference = sums(release(), totals) - sums(release(), torch.zeros(ROUNDS, 7))
    assert torch.allclose(difference, totals, atol=1e-5)


def test_planned_noise_keeps_its_kind() -> None:
    planned = Release(Cyclic(2), Flat(1.0), Uncalibrated(BandedNoise(1.0))).for_rounds(
        ROUNDS, CLIENTS
    )
    assert planned.whole_run
    made = planned.with_noise(3.0)
    assert (made.noise.noise_multiplier, made.noise.rounds, made.noise.turns) == (
        3.0,
        ROUNDS,
        TURNS,
    )


def test_what_has_no_proof_is_refused() -> None:
    with pytest.raises(DpflError, match="as many bands, not 5"):
        release(bands=5)
    with pytest.raises(DpflError, match="fixed turns"):
        Release(All(), Flat(1.0), BandedNoise(1.0))
    with pytest.raises(DpflError, match="fixed turns"):
        Release(Cyclic(2), Flat(1.0), Gaussian(1.0))
    with pytest.raises(DpflError, match=r"give budget\.rounds"):
        _ = BandedNoise(1.0).sensitivity
    with pytest.raises(DpflError, match="at least 1 band"):
        BandedNoise(1.0, 0)
    with pytest.raises(DpflError, match="positive number"):
        BandedNoise(0.0)


def test_the_noise_that_is_remembered_is_the_same_whatever_the_sum() -> None:
    """Fault: noise read off a float32 sum has lost, beside a large one, the digits in which it is
    taken back later.
    """
    made, size = release(), 50
    kept = [
        correlated_sum(total, made.noise, made, torch.empty(0, size), np.random.default_rng(0))[1]
        for total in (torch.zeros(size), torch.full((size,), 1e5))
    ]
    assert torch.equal(*kept)
