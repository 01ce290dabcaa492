"""Borders of what parts accept, and figures by hand: faults that statistical tests of the whole do
not see.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from dpfl.errors import DpflError
from dpfl.privacy import Flat, Gaussian, Poisson, PublicMedian, Release, accountant
from dpfl.privacy.accounting.accountant import rough_epsilon
from dpfl.privacy.accounting.calibration import largest_count
from dpfl.privacy.accounting.events import decode, gaussian
from dpfl.privacy.accounting.losses import gaussian_losses
from dpfl.privacy.accounting.published_claims import TwoWayNoise
from dpfl.privacy.mechanisms.clips.adaptive_clip import ShareOfMean
from dpfl.privacy.mechanisms.clips.clip import check_clip_norm
from dpfl.privacy.mechanisms.noises.haar import Haar
from dpfl.privacy.mechanisms.noises.haar_release import HaarClip, HaarLevels, HaarNoise
from dpfl.privacy.mechanisms.noises.integer_sum import IntegerSum
from dpfl.privacy.mechanisms.noises.noise import (
    FlooredGaussian,
    check_noise_multiplier,
    check_stddev,
)
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.privacy.queries.columns import ColumnQuery
from dpfl.privacy.queries.histogram import distribution, private_histogram
from tests.privacy.exact import poisson

EVENT = poisson(0.05, 1.5)


class TestCounting:
    def test_the_largest_count_up_to_a_horizon(self):
        for most in (0, 1, 2, 6, 7):
            for horizon in (1, 2, 7, 8, 100):
                assert largest_count(lambda count, most=most: count <= most, horizon) == min(
                    most, horizon
                )

    def test_epsilons_that_are_huge_are_bounds_and_no_errors(self):
        """Where losses do not fit on a grid; by the exact figure of Gaussians, which nothing that
        is sampled exceeds.
        """
        for noise, count in ((0.02, 40), (0.05, 400)):
            found = accountant("pld").epsilon({poisson(0.9, noise): count}, 1e-5)
            assert (
                200
                < found
                <= accountant("pld").epsilon({gaussian(noise): count}, 1e-5) * (1 + 1e-9)
            )

    def test_rough_figures_of_multiples_are_just_above_the_fine_ones(self):
        for multiple in (1, 2, 3):
            fine = accountant("pld").epsilon({EVENT: 10 * multiple}, 1e-5)
            assert fine <= rough_epsilon(frozenset(), EVENT, 10, multiple, 1e-5) <= fine + 0.02
        start = frozenset({(gaussian(3.0), 2)})
        fine = accountant("pld").epsilon({gaussian(3.0): 2, EVENT: 20}, 1e-5)
        assert fine <= rough_epsilon(start, EVENT, 10, 2, 1e-5) <= fine + 0.02

    @pytest.mark.parametrize(("noise", "rate"), [(0.7, 0.3), (1.0, 0.5), (2.0, 0.05), (1.0, 1.0)])
    def test_losses_both_ways_are_dp_accountings(self, noise, rate):
        from dp_accounting.pld import privacy_loss_distribution as pld

        theirs = pld.from_gaussian_mechanism(
            noise, value_discretization_interval=1e-3, sampling_prob=rate
        )
        own = gaussian_losses(noise, rate, 1e-3)
        for delta in (1e-3, 1e-6):
            assert own.epsilon(delta) == pytest.approx(
                theirs.get_epsilon_for_delta(delta), abs=1e-7
            )
            assert own.removed_losses.epsilon(delta) == pytest.approx(
                theirs._pmf_remove.get_epsilon_for_delta(delta), abs=1e-7
            )
            assert own.added_losses.epsilon(delta) == pytest.approx(
                theirs._pmf_add.get_epsilon_for_delta(delta), abs=1e-7
            )

    @pytest.mark.parametrize(
        "line",
        [
            '{"of":{"mechanism":"gaussian","noise_multiplier":1.0},"rate":1.5,"sampling":"poisson"}',
            '{"of":{"mechanism":"gaussian","noise_multiplier":1.0},"rate":0.0,"sampling":"poisson"}',
            '{"of":{"mechanism":"gaussian","noise_multiplier":0.0},"rate":0.5,"sampling":"poisson"}',
            '{"mechanism":"gaussian","noise_multiplier":0.0}',
            '{"of":{"mechanism":"gaussian","noise_multiplier":1.0},"population":5,"sampling":"fixed-size","size":0}',
            '{"of":{"mechanism":"gaussian","noise_multiplier":1.0},"population":5,"sampling":"fixed-size","size":6}',
        ],
    )
    def test_events_just_beyond_what_there_is_are_refused(self, line):
        with pytest.raises(DpflError):
            decode(line)


class TestLevels:
    @pytest.mark.parametrize("level", [0.0, -1.0, 1e-13, math.inf, math.nan])
    def test_no_clip_has_a_level_that_drowns_or_is_no_number(self, level):
        for make in (check_clip_norm, Flat, PublicMedian, ShareOfMean, HaarClip):
            with pytest.raises(DpflError):
                make(level)

    def test_a_share_of_a_mean_norm(self):
        assert ShareOfMean(1.0, share=0.5).adapt([1.0, 2.0, 9.0]).clip_norm == 2.0
        assert ShareOfMean(3.0, share=0.5).adapt([]).clip_norm == 3.0
        assert ShareOfMean(1.0, share=0.5, rounds=1).rounds == 1
        for wrong in (
            {"share": 0.0},
            {"share": math.inf},
            {"share": -1.0},
            {"rounds": 0},
            {"share": 0.5, "rounds": -1},
        ):
            with pytest.raises(DpflError):
                ShareOfMean(1.0, **wrong)

    def test_multipliers_and_deviations_end_where_float32_does(self):
        for good in (1e-15, 1.0, 1e15):
            check_noise_multiplier(good)
        for good in (1e-29, 1.0, 1e29):
            check_stddev(good)
        for check, wrong in (
            (check_noise_multiplier, (9e-16, 1.1e15, 0.0, -1.0)),
            (check_stddev, (1e-31, 1e31, 0.0, math.nan)),
        ):
            for value in wrong:
                with pytest.raises(DpflError):
                    check(value)

    def test_noise_that_follows_what_was_released_is_never_counted_as_more(self):
        assert FlooredGaussian(2.0, floor=2.0).floor == 2.0
        for wrong in ({}, {"floor": 0.0}, {"floor": 2.001}, {"floor": -1.0}):
            with pytest.raises(DpflError):
                FlooredGaussian(2.0, **wrong)

    @pytest.mark.parametrize(
        "parts",
        [
            {"shared_by": 3},
            {"divide_by_drawn": True},
            {"divisor": 5.0},
            {"noise": None},
            {"clip": PublicMedian(1.0)},
            {"noise": FlooredGaussian(1.0, floor=0.5)},
            {"clip": HaarClip(1.0), "noise": Gaussian(1.0)},
        ],
    )
    def test_secure_sums_of_other_parts_are_refused(self, parts):
        usual = {
            "sampling": Poisson(0.5),
            "clip": Flat(1.0),
            "noise": Gaussian(1.0),
            "noise_shares": NoiseShares(3),
        }
        Release(**usual)
        with pytest.raises(DpflError):
            Release(**{**usual, **parts})

    def test_a_sum_that_ends_at_half_of_the_numbers_takes_more_bits(self):
        """16 steps to a deviation and 152 for its tail: bounds just below, at and above 2^31 steps
        in all.
        """
        for steps, bits in ((2**31 - 1, 32), (2**31, 64), (2**31 + 1, 64)):
            whole = IntegerSum(1.0, (steps - 153) / 16, 1)
            assert whole.largest == steps
            assert whole.bits == bits


class TestSurveys:
    def test_values_out_of_bounds_or_missing_count_once_in_a_bin(self):
        query = ColumnQuery(1.0, numbers=1, binned=((0, 4),))
        rows = torch.tensor(
            [
                [-5.0],
                [-1.0],
                [-0.6],
                [-0.4],
                [0.4],
                [1.0],
                [7.0],
                [math.nan],
                [math.inf],
                [-math.inf],
            ]
        )
        found = query.bound_rows(rows)
        assert found.argmax(1).tolist() == [0, 0, 0, 1, 2, 3, 3, 2, 3, 0]
        assert found.sum(1).tolist() == pytest.approx([1.0] * 10, abs=1e-4)

    def test_histograms_of_counts_that_are_no_numbers_are_refused(self):
        for wrong in ([1.0, math.inf], [math.nan, 2.0], [], [[1.0, 2.0]]):
            with pytest.raises(DpflError):
                private_histogram(wrong, 1.0, np.random.default_rng(0))
        for wrong in ([1.0, -0.1], [math.inf, 1.0], []):
            with pytest.raises(DpflError):
                distribution(wrong)


class TestHaar:
    def test_weights_are_all_above_zero(self):
        haar = Haar((4,))
        for wrong in (
            torch.tensor([1.0, 0.0, 1.0, 1.0]),
            torch.tensor([1.0, 1.0, -1.0, 1.0]),
            torch.tensor([1.0, math.inf, 1, 1]),
        ):
            with pytest.raises(DpflError, match="finite numbers above 0"):
                haar.noise_variance(wrong)

    def test_every_level_of_every_row_is_inside_by_itself(self):
        """Rows of other lengths, so that no row's factor is another's."""
        clip = HaarLevels(1.0).for_model((8,))
        rows = torch.randn(3, 8, generator=torch.Generator().manual_seed(1)) * torch.tensor(
            [[0.01], [5.0], [100.0]]
        )
        found, haar = clip.clip_rows(rows), Haar((8,))
        assert torch.allclose(found[0].float(), rows[0], rtol=1e-4)
        for row in (1, 2):
            vectors = (rows[row].double(), found[row].double())
            before, after = (
                torch.split(haar.transform(vector), haar.band_sizes.tolist()) for vector in vectors
            )
            wanted = [min(1.0, float(level.norm())) for level in before]
            assert [float(level.norm()) for level in after] == pytest.approx(wanted, rel=1e-4)

    def test_what_lemma_2_adds_of_the_noise(self):
        """sqrt(2 / (2 + log2 m)) for m = 8 coefficients, and a portion of it."""
        noise = HaarNoise(1.0, lemma=True).for_model((8,))
        assert noise.share == pytest.approx(math.sqrt(2 / 5))
        assert HaarNoise(1.0, lemma=True, portion=0.5).for_model((8,)).share == pytest.approx(
            math.sqrt(2 / 5) / 2
        )
        assert HaarNoise(1.0).for_model((8,)).share == 1.0
        with pytest.raises(DpflError, match="leave by_layer out"):
            HaarNoise(1.0, lemma=True, by_layer=True)
        for portion in (0.0, -1.0, math.inf):
            with pytest.raises(DpflError, match="portion"):
                HaarNoise(1.0, portion=portion)

    @pytest.mark.parametrize(
        "noise",
        [HaarNoise(1.0), HaarNoise(1.0, portion=0.5), HaarNoise(1.0, weights="orthonormal")],
    )
    def test_the_energy_is_that_of_the_noise(self, noise):
        for_model = noise.for_model((16,))
        rng = np.random.default_rng(3)
        drawn = torch.stack([for_model.vector(16, 2.0, rng) for _ in range(300)])
        assert float(drawn.square().sum(1).mean()) / 4 == pytest.approx(
            for_model.energy(16), rel=0.25
        )

    def test_what_goes_into_a_secure_sum_is_what_the_clip_bounds(self):
        """|W H| of a clipped vector is the clip norm; and the way back is the vector."""
        clip, noise = HaarClip(2.0).for_model((8,)), HaarNoise(1.0).for_model((8,))
        vector = torch.randn(8, generator=torch.Generator().manual_seed(2)) * 100
        inside = vector * clip.factors(clip.norms(vector[None]))[0]
        assert float(noise.outward(inside).norm()) == pytest.approx(2.0, rel=1e-4)
        assert torch.allclose(noise.inward(noise.outward(vector)), vector.double(), atol=1e-4)


def test_what_nbafl_claims_adds_up_over_exposures():
    noise = TwoWayNoise(
        epsilon=6.0, delta=1e-3, clip=1.0, smallest=100, exposures=3, rounds=20, clients=10
    )
    assert [noise.claimed(releases) for releases in (1, 3, 6)] == [2.0, 6.0, 12.0]
