"""The transform is exact, the weights do what they say, and the published clip is worth what the
algebra says.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpfl.errors import DpflError
from dpfl.privacy.mechanisms.noises import haar
from dpfl.privacy.mechanisms.noises.haar import (
    Haar,
    inverse,
    padded_length,
    transform,
)

EXAMPLE = torch.tensor([4, 8, 1, 9, 8, 4, 5, 3], dtype=torch.float64)
POWERS = [1, 2, 4, 8, 64, 1024]
LAYERS = st.lists(st.integers(1, 70), min_size=1, max_size=4)
SEEDS = st.integers(0, 2**32 - 1)


def normal(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def layerwise(sizes):
    """The transform that goes one layer at a time."""
    return Haar(tuple(int(end) for end in np.cumsum(sizes)))


def relative_variance(layers, weights, energies):
    """The total noise variance over that of plain DP-SGD at the same multiplier and signal.

    The clip is on |W H|, set so that gradients of these energies lose as much as under a clip on
    |g|.
    """
    gains = torch.split(weights.square() / layers.supports, layers.band_sizes.tolist())
    means = torch.stack([gain.mean() for gain in gains])
    norm = float((means * energies).sum() / energies.sum())
    return norm * layers.noise_variance(weights) / layers.coefficients


def matrix_of(length):
    """The transform as a matrix, from its definition and not from its code."""
    size, rows = padded_length(length), []
    for support in [2**level for level in range(1, size.bit_length())]:
        for start in range(0, size, support):
            row = np.zeros(size)
            row[start : start + support // 2] = 1 / support
            row[start + support // 2 : start + support] = -1 / support
            rows.append(row)
    return torch.from_numpy(np.array([np.full(size, 1 / size), *rows])[:, :length])


def test_the_papers_example():
    coefficients = transform(EXAMPLE)
    assert coefficients.tolist() == [5.25, -2, -4, 2, 1, 0.5, 1, 0.25]
    assert inverse(coefficients).tolist() == EXAMPLE.tolist()


def test_norms_of_the_papers_example():
    weights = Haar((8,)).weights("paper")
    assert weights.tolist() == [8, 2, 2, 2, 2, 4, 4, 8]
    assert transform(EXAMPLE).norm() == pytest.approx(7.339959, abs=5e-7)
    assert EXAMPLE.norm() == pytest.approx(16.613248, abs=5e-7)
    assert Haar((8,)).weighted_norm(EXAMPLE, weights) == pytest.approx(43.451122, abs=5e-7)


@pytest.mark.parametrize("length", [1, 2, 3, 5, 8, 13, 33])
def test_the_transform_is_the_matrix_of_its_definition(length):
    vectors = normal(4, length)
    assert torch.allclose(transform(vectors), vectors @ matrix_of(length).T, atol=1e-14)


@given(length=st.integers(1, 300), seed=SEEDS)
def test_the_inverse_gives_back_any_vector_of_any_length(length, seed):
    vectors = 1e3 * normal(2, 3, length, seed=seed)
    coefficients = transform(vectors)
    assert coefficients.shape == (2, 3, padded_length(length))
    assert torch.allclose(inverse(coefficients, length), vectors, rtol=1e-12, atol=1e-10)


@given(sizes=LAYERS, seed=SEEDS)
def test_layers_are_transformed_by_themselves(sizes, seed):
    layers, vector = layerwise(sizes), normal(sum(sizes), seed=seed)
    coefficients = layers.transform(vector)
    assert torch.equal(coefficients, torch.cat([transform(part) for part in vector.split(sizes)]))
    assert torch.allclose(layers.inverse(coefficients), vector, rtol=1e-12, atol=1e-12)


def test_single_precision_comes_back_to_its_rounding():
    vector = normal(100_000).float()
    back = Haar((100_000,)).inverse(Haar((100_000,)).transform(vector))
    assert back.dtype == torch.float32
    assert (back - vector).abs().max() < 1e-5


def test_one_element_is_its_own_coefficient():
    one = Haar((1,))
    assert one.transform(torch.tensor([3.0])).tolist() == [3.0]
    assert one.inverse(torch.tensor([3.0])).tolist() == [3.0]
    for name in ("paper", "orthonormal"):
        assert one.weights(name).tolist() == [1.0]
        assert one.noise_variance(one.weights(name)) == 1
    assert one.match_energies(torch.tensor([7.0])).tolist() == [1.0]


@given(sizes=LAYERS, seed=SEEDS)
def test_orthonormal_weights_make_an_isometry(sizes, seed):
    layers, vectors = layerwise(sizes), normal(3, sum(sizes), seed=seed)
    assert torch.allclose(
        layers.weighted_norm(vectors, layers.weights("orthonormal")),
        vectors.norm(dim=-1),
        rtol=1e-12,
    )


@pytest.mark.parametrize("size", POWERS)
def test_the_published_clip_leaves_a_fraction_of_the_multiplier(size):
    layers = Haar((size,))
    paper, orthonormal = layers.weights("paper"), layers.weights("orthonormal")
    assert layers.effective_multiplier(1.5, paper, "coefficients") == pytest.approx(1.5 / size)
    assert layers.effective_multiplier(1.5, paper, "gradient") == pytest.approx(
        1.5 / math.sqrt(size)
    )
    assert layers.effective_multiplier(1.5, orthonormal, "gradient") == pytest.approx(1.5)


def test_a_bound_on_each_level_adds_the_levels_up():
    layers = Haar((8,))
    assert layers.sensitivity(layers.weights("paper"), "levels") == pytest.approx(
        math.sqrt(8**2 + 2**2 + 4**2 + 8**2)
    )
    even = 1 / layers.supports  # as if each level had the bound C / W
    assert layers.sensitivity(layers.weights("paper") * even, "levels", 3.0) == pytest.approx(
        3 * math.sqrt(1 + math.log2(8))
    )


@pytest.mark.parametrize("size", POWERS)
def test_the_constant_vector_attains_the_sensitivity(size):
    layers, level = Haar((size,)), 2.5
    weights, ones = layers.weights("paper"), torch.ones(size, dtype=torch.float64)
    inside_h, inside_g = level * ones, level * ones / math.sqrt(size)
    assert layers.transform(inside_h).norm() == pytest.approx(level)
    assert inside_g.norm() == pytest.approx(level)
    assert layers.weighted_norm(inside_h, weights) == pytest.approx(
        layers.sensitivity(weights, "coefficients", level)
    )
    assert layers.weighted_norm(inside_g, weights) == pytest.approx(
        layers.sensitivity(weights, "gradient", level)
    )


@given(sizes=LAYERS, seed=SEEDS, name=st.sampled_from(["paper", "orthonormal", "matched"]))
def test_no_vector_exceeds_the_sensitivity(sizes, seed, name):
    layers, vectors = layerwise(sizes), normal(50, sum(sizes), seed=seed) ** 5
    weights = layers.weights(name, normal(len(layers.band_sizes), seed=seed).square())
    weighted = layers.weighted_norm(vectors, weights)
    coefficients = layers.transform(vectors)
    bands = torch.stack(
        [band.norm(dim=-1) for band in coefficients.split(layers.band_sizes.tolist(), dim=-1)]
    )
    for clip, norms in (
        ("coefficients", coefficients.norm(dim=-1)),
        ("gradient", vectors.norm(dim=-1)),
        ("levels", bands.amax(0)),
    ):
        assert (weighted <= norms * layers.sensitivity(weights, clip) * (1 + 1e-12)).all()


@pytest.mark.parametrize("clip", ["coefficients", "gradient"])
def test_the_sensitivity_is_the_largest_singular_value(clip):
    """For any weights, by linear algebra: max |W H| over |H| = 1, or over |g| = 1."""
    layers = layerwise([8, 4])
    weights = normal(12).square() + 0.1
    transformed = torch.block_diag(matrix_of(8), matrix_of(4))
    operator = torch.diag(weights) @ (
        torch.eye(12, dtype=torch.float64) if clip == "coefficients" else transformed
    )
    assert layers.sensitivity(weights, clip) == pytest.approx(
        float(torch.linalg.matrix_norm(operator, 2))
    )


@pytest.mark.parametrize("length", [5, 9, 600])
def test_padding_does_not_rescue_the_claim(length):
    """The constant vector still moves the release by about sqrt(n) times what is accounted for, and
    never by more than said.
    """
    layers = Haar((length,))
    moved = float(
        layers.weighted_norm(torch.ones(length, dtype=torch.float64), layers.weights("paper"))
    ) / math.sqrt(length)
    assert math.sqrt(length) <= moved <= layers.sensitivity(layers.weights("paper"), "gradient")


@pytest.mark.parametrize("size", POWERS)
def test_noise_variance_of_the_papers_weights(size):
    layers = Haar((size,))
    assert layers.noise_variance(layers.weights("paper")) / size == pytest.approx(
        1 / 3 + 2 / (3 * size**2)
    )
    assert layers.noise_variance(layers.weights("orthonormal")) / size == pytest.approx(1)


@pytest.mark.parametrize("size", [1, 2, 8, 64])
def test_measured_noise_has_that_variance_on_every_element(size):
    layers, rng, trials, deviation = Haar((size,)), np.random.default_rng(size), 4000, 0.7
    weights = layers.weights("paper")
    draws = (
        torch.stack([layers.noise(weights, deviation, rng) for _ in range(trials)]).double().numpy()
    )
    expected = deviation**2 * (1 / 3 + 2 / (3 * size**2))
    low, high = stats.chi2.interval(1 - 1e-6 / size, trials)
    assert (low <= (draws**2).sum(axis=0) / expected).all()
    assert ((draws**2).sum(axis=0) / expected <= high).all()
    assert np.abs(draws.mean(axis=0)).max() < 6 * math.sqrt(expected / trials)


def test_orthonormal_noise_is_plain_noise():
    layers, rng, trials = layerwise([8, 5]), np.random.default_rng(3), 6000
    draws = (
        torch.stack([layers.noise(layers.weights("orthonormal"), 2.0, rng) for _ in range(trials)])
        .double()
        .numpy()
    )
    covariance = draws.T @ draws / trials
    assert np.abs(covariance - 4 * np.eye(13)).max() < 6 * 4 * math.sqrt(2 / trials)


@pytest.mark.parametrize("size", [2, 8, 1024])
def test_what_the_papers_weights_cost_and_gain(size):
    layers, levels = Haar((size,)), int(math.log2(size))
    paper = layers.weights("paper")
    white, finest = layers.band_sizes.double(), torch.zeros(levels + 1)
    finest[1] = 1.0
    factor = (
        1 + 2 / size**2
    )  # the variance of an element is a third of this, and a third for a large model
    assert relative_variance(layers, paper, white) == pytest.approx((1 + levels) / 3 * factor)
    assert 1 / relative_variance(layers, paper, finest) == pytest.approx(1.5 / factor, rel=1e-4)


@given(sizes=LAYERS, seed=SEEDS)
def test_matched_weights_reach_the_least_variance(sizes, seed):
    layers = layerwise(sizes)
    energies = normal(len(layers.band_sizes), seed=seed).square() + 0.01
    counts, size = layers.band_sizes.double(), layers.coefficients
    matched = layers.weights("matched", energies)
    least = float((counts * energies).sqrt().sum() ** 2)
    assert layers.noise_variance(matched) == pytest.approx(least / float(energies.sum()))
    assert layers.noise_variance(matched) <= size * (1 + 1e-12)
    assert relative_variance(layers, matched, energies) == pytest.approx(
        least / (size * float(energies.sum()))
    )
    other = matched * torch.exp(0.3 * normal(size, seed=seed + 1))
    assert relative_variance(layers, matched, energies) <= relative_variance(
        layers, other, energies
    ) * (1 + 1e-12)


def test_weights_may_differ_within_a_band():
    """Energy is taken as spread evenly over a band, so that it meets the mean square of its
    weights.
    """
    layers, weights = layerwise([4, 2]), normal(6).square() + 0.1
    energies, gains = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]), weights.square() / layers.supports
    signal = gains[0] * 1 + gains[1:3].mean() * 2 + gains[3] * 3 + gains[4] * 4 + gains[5] * 5
    assert relative_variance(layers, weights, energies) == pytest.approx(
        float(signal / 15 * (1 / gains).sum() / 6)
    )


def test_matched_weights_follow_the_printed_proportion_and_keep_the_typical_norm():
    layers, energies = Haar((8,)), torch.tensor([1.0, 4.0, 0.5, 2.0])
    squares = layers.weights("matched", energies).square() / layers.supports
    per_band = torch.stack([band[0] for band in squares.split(layers.band_sizes.tolist())])
    ratios = per_band / (layers.band_sizes / energies).sqrt()
    assert torch.allclose(ratios, ratios[0].expand(4), rtol=1e-6)
    assert float((per_band * energies).sum()) == pytest.approx(float(energies.sum()), rel=1e-6)


def test_bands_of_equal_energy_a_coefficient_get_orthonormal_weights():
    layers = layerwise([8, 3])
    for energies in (3.0 * layers.band_sizes, torch.zeros(len(layers.band_sizes))):
        assert torch.allclose(layers.weights("matched", energies), layers.weights("orthonormal"))


def test_a_band_without_energy_keeps_a_finite_weight():
    layers, energies = Haar((8,)), torch.tensor([0.0, 4.0, 0.0, 2.0])
    weights = layers.weights("matched", energies)
    assert weights.isfinite().all()
    assert layers.noise_variance(weights) == pytest.approx(
        (math.sqrt(16) + math.sqrt(2)) ** 2 / 6, rel=1e-2
    )


@given(sizes=LAYERS, seed=SEEDS)
def test_energies_add_up_to_the_squared_norm(sizes, seed):
    layers, vectors = layerwise(sizes), normal(7, sum(sizes), seed=seed)
    energies = layers.energies(vectors)
    assert float(energies.sum()) == pytest.approx(float(vectors.square().sum(dim=-1).mean()))
    assert len(energies) == sum(1 + padded_length(size).bit_length() - 1 for size in sizes)


def test_energy_lies_in_the_band_where_it_was_put():
    coefficients = torch.zeros(8, dtype=torch.float64)
    coefficients[5] = 3.0  # the first coefficient of the level of support 4
    assert Haar((8,)).energies(inverse(coefficients)).tolist() == [0, 0, 36, 0]


def canary_errors(canary, weights, trials=20_000, seed=0):
    """The game of a release with the canary or without, scored by the sum of its elements; wrong
    guesses of either kind.
    """
    layers, rng = Haar((len(canary),)), np.random.default_rng(seed)
    noise = torch.from_numpy(rng.standard_normal((2 * trials, len(canary)))) / weights
    scores = layers.inverse(noise).sum(dim=-1)
    mean = float(canary.sum())
    return (
        int((scores[:trials] > mean / 2).sum()),
        int((scores[trials:] + mean <= mean / 2).sum()),
        scores,
    )


def epsilon_bound(errors, trials):
    """Two-sample Clopper-Pearson at 95%, with the same number of errors on either side and delta
    1e-5.
    """
    rate = stats.beta.ppf(0.975, errors + 1, trials - errors)
    return math.log((1 - rate - 1e-5) / rate)


def test_a_canary_refutes_the_published_claim():
    layers, claimed = Haar((8,)), 4.377178
    canary = torch.ones(8, dtype=torch.float64)  # |H| = 1: inside the published clip
    false_positives, false_negatives, scores = canary_errors(canary, layers.weights("paper"))
    assert scores.std() == pytest.approx(1, abs=0.02)  # so the score is N(0, 1) or N(m, 1)
    assert epsilon_bound(0, 20_000) == pytest.approx(8.60, abs=0.005)
    assert epsilon_bound(max(false_positives, false_negatives), 20_000) > claimed + 2


def test_the_same_canary_inside_the_sound_clip_stays_within_the_claim():
    layers, ones = Haar((8,)), torch.ones(8, dtype=torch.float64)
    weights = layers.weights("paper")
    canary = ones / layers.weighted_norm(ones, weights)
    false_positives, false_negatives, scores = canary_errors(canary, weights)
    assert float(canary.sum()) / float(scores.std()) == pytest.approx(1, abs=0.02)
    assert epsilon_bound(max(false_positives, false_negatives), 20_000) < 4.377178


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: padded_length(0),
        lambda: transform(torch.zeros(0)),
        lambda: transform(torch.tensor(1.0)),
        lambda: transform(torch.tensor([1, 2])),
        lambda: inverse(torch.zeros(6)),
        lambda: inverse(torch.zeros(4), 5),
        lambda: inverse(torch.tensor(1.0)),
        lambda: Haar(()),
        lambda: layerwise([]),
        lambda: Haar((3, 3)),
        lambda: Haar((0,)),
        lambda: Haar((5,)).transform(torch.zeros(4)),
        lambda: Haar((5,)).inverse(torch.zeros(5)),
        lambda: Haar((4,)).weights("fourier"),
        lambda: Haar((4,)).weights("matched"),
        lambda: Haar((4,)).weights("matched", torch.ones(4)),
        lambda: Haar((4,)).weights("matched", torch.tensor([1.0, -1.0, 1.0])),
        lambda: Haar((4,)).weights("matched", torch.tensor([1.0, math.inf, 1.0])),
        lambda: Haar((4,)).sensitivity(torch.ones(4), "model"),
        lambda: Haar((4,)).sensitivity(torch.ones(3), "gradient"),
        lambda: Haar((4,)).noise_variance(torch.zeros(4)),
        lambda: Haar((4,)).effective_multiplier(0.0, torch.ones(4), "gradient"),
    ],
)
def test_bad_input_is_one_clear_sentence(wrong):
    with pytest.raises(DpflError) as error:
        wrong()
    text = str(error.value)
    assert text.endswith(".")
    assert "\n" not in text


def test_the_clips_that_are_named_are_the_clips_there_are():
    layers = Haar((4,))
    assert all(layers.sensitivity(layers.weights("paper"), clip) > 0 for clip in haar.CLIPS)
