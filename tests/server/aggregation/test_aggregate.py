import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dpfl.client.task import ClientReply
from dpfl.privacy import All, FixedSize, Flat, Gaussian, PoissonSize, Quantile, Release
from dpfl.privacy.mechanisms.clips.vector_clipping import clip_vector
from dpfl.privacy.mechanisms.noises.noise import gaussian_vector
from dpfl.server.aggregation.aggregate import mean, noisy_inside_fraction, noisy_sum, weighted_sum
from dpfl.server.aggregation.weights import SizeWeights

WIDE = 20_000
LEVEL, Z = 0.5, 2.0


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def updates(count: int, size: int = 6, seed: int = 0) -> list[ClientReply]:
    rows = torch.randn(count, size, generator=torch.Generator().manual_seed(seed))
    return [ClientReply(client, row) for client, row in enumerate(rows)]


def release(expected: int, **options: object) -> Release:
    return Release(PoissonSize(expected), Flat(LEVEL), Gaussian(Z), **options)


def noisy(
    replies: list[ClientReply],
    weights: Tensor,
    size: int,
    plan: Release,
    generator: np.random.Generator,
) -> Tensor:
    total = noisy_sum(weighted_sum(replies, weights, size), len(replies), plan, generator)
    return total / (plan.sampling.expected_size(len(weights)) * float(weights.mean()))


def within(deviation: Tensor, stated: float) -> bool:
    """Five standard errors of an estimated deviation."""
    return abs(float(deviation.std()) / stated - 1) < 5 / math.sqrt(2 * deviation.numel())


def test_the_mean_of_replies_is_weighted_and_over_those_who_replied() -> None:
    replies = updates(4)
    weights = torch.tensor([1.0, 0.5, 0.25, 0.1])
    expected = (1.0 * replies[0].update + 0.25 * replies[2].update) / 1.25
    assert torch.allclose(mean([replies[0], replies[2]], weights, 6), expected)


def test_the_mean_of_no_replies_is_a_step_of_zero() -> None:
    assert torch.equal(mean([], torch.ones(3), 6), torch.zeros(6))


def test_a_reply_without_an_update_adds_nothing_to_a_sum() -> None:
    assert torch.equal(
        weighted_sum([ClientReply(0), ClientReply(1, torch.ones(2))], torch.ones(2), 2),
        torch.ones(2),
    )


@pytest.mark.parametrize("present", [0, 1, 5, 10])
def test_fault_noise_shrinks_or_the_divisor_follows_when_fewer_clients_reply(present: int) -> None:
    """Whoever answers, the sum is divided by the expected cohort and gets the same noise."""
    replies, weights = updates(10), torch.ones(40)
    found = noisy(replies[:present], weights, 6, release(8), rng())
    noise = Z * LEVEL * gaussian_vector(6, 1.0, rng())
    total = torch.zeros(6)
    for reply in replies[:present]:
        total += reply.update
    assert torch.allclose(found, (total + noise) / 8, atol=1e-6)


@pytest.mark.parametrize("sampling", [PoissonSize(8), FixedSize(8)])
def test_an_empty_cohort_is_released_as_noise(sampling: PoissonSize) -> None:
    found = noisy([], torch.ones(40), WIDE, Release(sampling, Flat(LEVEL), Gaussian(Z)), rng())
    assert within(found, Z * LEVEL / 8)


def test_the_divisor_of_everyone_is_everyone() -> None:
    found = noisy([], torch.ones(40), WIDE, Release(All(), Flat(LEVEL), Gaussian(Z)), rng())
    assert within(found, Z * LEVEL / 40)


def test_a_private_mean_over_a_full_cohort_is_the_mean_with_noise_around_it() -> None:
    replies = updates(8, WIDE)
    found = noisy(replies, torch.ones(8), WIDE, Release(All(), Flat(LEVEL), Gaussian(Z)), rng())
    noise = found - torch.stack([reply.update for reply in replies]).mean(0)
    assert within(noise, Z * LEVEL / 8)
    assert abs(float(noise.mean())) < 5 * Z * LEVEL / 8 / math.sqrt(WIDE)


SIZES = st.lists(st.integers(1, 100_000), min_size=2, max_size=12)


@given(sizes=SIZES, seed=st.integers(0, 2**32), scale=st.floats(1e-3, 1e4), data=st.data())
@settings(max_examples=60, deadline=None)
def test_fault_noise_for_c_over_sampled_while_the_mean_is_weighted_by_counts(
    sizes: list[int], seed: int, scale: float, data: st.DataObject
) -> None:
    """No client, of any size, moves the released sum by more than the sensitivity that the noise is
    made for.
    """
    weights, plan = SizeWeights().of(sizes), release(1)
    generator = torch.Generator().manual_seed(seed)
    replies = []
    for client in range(len(sizes)):
        vector = scale * torch.randn(5, generator=generator)
        clipped, _ = clip_vector(vector, plan.clip, ["a"], [0, 5])
        replies.append(ClientReply(client, clipped))
    gone = data.draw(st.integers(0, len(sizes) - 1))
    others = [reply for reply in replies if reply.client != gone]
    divisor = plan.sampling.expected_size(len(sizes)) * float(weights.mean())
    whole = noisy(replies, weights, 5, plan, rng(1)) * divisor
    without = noisy(others, weights, 5, plan, rng(1)) * divisor
    stated = plan.sensitivity(float(weights.max()))
    rounding = 1e-5 * (len(sizes) + 10)
    assert float((whole - without).norm()) <= stated + rounding
    noise = noisy([], weights, 2000, plan, rng(2)) * divisor
    assert float(noise.std()) == pytest.approx(Z * stated, rel=0.1)


@given(sizes=SIZES)
def test_the_divisor_of_a_weighted_mean_does_not_depend_on_who_was_drawn(sizes: list[int]) -> None:
    weights = SizeWeights().of(sizes)
    noises = [
        noisy([], weights, 4, release(1), rng()),
        noisy([ClientReply(0, torch.zeros(4))], weights, 4, release(1), rng()),
    ]
    assert torch.equal(*noises)


def noised_uploads(present: int, shared_by: int) -> list[ClientReply]:
    plan = release(shared_by, shared_by=shared_by)
    return [
        ClientReply(
            client, plan.add_noise(torch.zeros(WIDE), rng(100 + client), share=1 / shared_by)
        )
        for client in range(present)
    ]


@pytest.mark.parametrize("present", [0, 1, 5, 9, 10])
def test_fault_dropouts_lower_shared_noise_the_server_adds_what_is_missing(present: int) -> None:
    found = noisy(
        noised_uploads(present, 10), torch.ones(40), WIDE, release(10, shared_by=10), rng(1)
    )
    assert within(found, Z * LEVEL / 10)


def test_shared_noise_of_more_clients_than_expected_is_never_less_than_stated() -> None:
    found = noisy(noised_uploads(15, 10), torch.ones(40), WIDE, release(10, shared_by=10), rng(1))
    assert within(found, Z * LEVEL / 10 * math.sqrt(1.5))


def test_the_server_adds_no_noise_to_a_full_cohort_that_brought_its_own() -> None:
    replies = noised_uploads(10, 10)
    found = noisy(replies, torch.ones(40), WIDE, release(10, shared_by=10), rng(1))
    assert torch.allclose(found, weighted_sum(replies, torch.ones(40), WIDE).float() / 10)


def test_quantile_noise_pays_for_its_count_out_of_the_same_release() -> None:
    """Fault: adaptive clipping that leaves its count query out of epsilon. z^-2 = z_vector^-2 + (2
    sigma_b)^-2.
    """
    plan = Release(PoissonSize(8), Quantile(LEVEL, count_noise=1.5), Gaussian(Z))
    found = noisy([], torch.ones(40), WIDE, plan, rng())
    vector = (Z**-2 - (2 * 1.5) ** -2) ** -0.5
    assert vector > Z
    assert within(found, vector * LEVEL / 8)


COUNTED = Release(PoissonSize(8), Quantile(1.0, count_noise=2.0), Gaussian(Z))


@pytest.mark.parametrize("counted", [COUNTED, COUNTED.with_secure_noise()])
@pytest.mark.parametrize(("inside", "outside"), [(7, 3), (0, 10), (10, 0), (2, 1), (0, 0)])
def test_the_inside_fraction_is_over_the_expected_cohort_and_its_noise_is_the_count_s(
    inside: int, outside: int, counted: Release
) -> None:
    replies = [ClientReply(0, torch.zeros(1), inside=True)] * inside + [
        ClientReply(0, torch.zeros(1), inside=False)
    ] * outside
    expected = 10
    found = np.array(
        [noisy_inside_fraction(replies, counted, expected, rng(seed)) for seed in range(4000)]
    )
    centre = (inside - outside) / 2 / expected + 0.5
    assert found.mean() == pytest.approx(centre, abs=5 * 0.2 / math.sqrt(4000))
    assert found.std() == pytest.approx(0.2, rel=5 / math.sqrt(8000))


@pytest.mark.parametrize("counted", [COUNTED, COUNTED.with_secure_noise()])
def test_one_client_moves_the_count_by_half_at_most(counted: Release) -> None:
    for inside in (True, False):
        reply = ClientReply(0, torch.zeros(1), inside=inside)
        with_it = noisy_inside_fraction([reply], counted, 1.0, rng(3))
        assert abs(with_it - noisy_inside_fraction([], counted, 1.0, rng(3))) == pytest.approx(0.5)
