"""Faults put into secure sums on purpose: each is caught by an audit of the system. docs/truth.md
lists them.
"""

from __future__ import annotations

from copy import copy
from functools import cache
from itertools import count

import numpy as np
import pytest

from dpfl.algorithms import auto, dp_fedavg, dp_fedavg_wav, fedavg_dp
from dpfl.audit import AuditSettings, audit
from dpfl.client.debits import ClientDebits
from dpfl.privacy import Keyed, Release
from dpfl.privacy.mechanisms.noises.integer_sum import IntegerSum
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.secagg import SumMember, SurvivorList, SurvivorVote, UnmaskingShares
from dpfl.server.algorithm import Algorithm
from tests.audit.fault_table import missing_rows
from tests.audit.faults import (
    Sabotage,
    drop_the_clip,
    forget_a_debit,
    halve_the_noise,
    reuse_a_noise_key,
)
from tests.secagg.test_sabotage import (
    leave_a_number_unmasked,
    leave_the_masks_of_the_missing,
    mask_by_a_seed_of_zeros,
    open_a_seed_by_one_share_fewer,
    reuse_all_masks,
    reuse_the_masks_of_pairs,
)

SUMS = NoiseShares(8, 1)
STEPS = fedavg_dp(tau=1, noise_multiplier=1.0).with_secure_sums(SUMS)
CLIENTS = dp_fedavg(noise_multiplier=1.0).with_secure_sums(SUMS)
COHORT = dp_fedavg(noise_multiplier=1.0, cohort=5).with_secure_sums(SUMS)
QUANTILE = dp_fedavg(clipping="quantile", noise_multiplier=1.0, count_noise=0.6).with_secure_sums(
    SUMS
)
HAAR = dp_fedavg_wav(noise_multiplier=1.0).with_secure_sums(SUMS)
QUERY = auto(noise_multiplier=1.0, rate=1.0).with_secure_sums(SUMS)


def leave_out_a_share(patch: pytest.MonkeyPatch) -> None:
    """Every seventh client, of the seven that are left, adds no noise."""
    honest, calls = IntegerSum.numbers, count()

    def numbers(self: IntegerSum, vector: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        if next(calls) % 7:
            return honest(self, vector, rng)
        return (
            np.rint(np.asarray(vector, np.float64) / self.unit).astype(np.int64).astype(self.kind)
        )

    patch.setattr(IntegerSum, "numbers", numbers)


def count_colluders_among_those_who_hide(patch: pytest.MonkeyPatch) -> None:
    """m in the place of m - t."""
    patch.setattr(NoiseShares, "share", lambda self, deviation: deviation / self.survivors**0.5)


def count_the_noise_of_the_missing(patch: pytest.MonkeyPatch) -> None:
    """All clients in the place of those who are left at least."""

    def integer_sum(self: Release, bound: float, clients: int) -> IntegerSum:
        assert self.noise_shares is not None
        return IntegerSum(
            self.stddev() / (clients - self.noise_shares.colluders) ** 0.5, bound, clients
        )

    patch.setattr(Release, "integer_sum", integer_sum)


def halve_the_shares(patch: pytest.MonkeyPatch) -> None:
    honest = NoiseShares.share
    patch.setattr(NoiseShares, "share", lambda self, deviation: honest(self, deviation) / 2)


def count_ten_times_as_much(patch: pytest.MonkeyPatch) -> None:
    """Of the count beside the vector, which then moves farther than the noise is for."""
    patch.setattr(
        Release, "count_unit", property(lambda self: 10 * self.stddev() / self.clip.count_noise)
    )


def send_the_same_numbers_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClientDebits, "unused_name", lambda self, task, name: name)


def let_all_clients_have_one_coin(patch: pytest.MonkeyPatch) -> None:
    honest = Keyed.generator

    def generator(
        self: Keyed, purpose: str, round: int = 0, client: int = 0
    ) -> np.random.Generator:
        return honest(self, purpose, round, 0 if purpose == "drawn" else client)

    patch.setattr(Keyed, "generator", generator)


def open_below_the_least(patch: pytest.MonkeyPatch) -> None:
    honest = SumMember.agree

    def agree(self: SumMember, survivors: SurvivorList) -> UnmaskingShares | SurvivorVote:
        self._group = copy(self._group)
        object.__setattr__(self._group, "survivors", 1)
        return honest(self, survivors)

    patch.setattr(SumMember, "agree", agree)


CAUGHT: list[tuple[Sabotage, Algorithm, str]] = [
    (leave_out_a_share, STEPS, "noise"),
    (leave_out_a_share, CLIENTS, "noise"),
    (count_colluders_among_those_who_hide, STEPS, "noise"),
    (count_colluders_among_those_who_hide, HAAR, "noise"),
    (count_the_noise_of_the_missing, STEPS, "noise"),
    (count_the_noise_of_the_missing, QUANTILE, "noise"),
    (halve_the_noise, STEPS, "one release"),
    (halve_the_shares, HAAR, "one release"),
    (halve_the_shares, QUERY, "query"),
    (count_ten_times_as_much, QUANTILE, "one release"),
    (drop_the_clip, STEPS, "sensitivity"),
    (drop_the_clip, CLIENTS, "sensitivity"),
    (send_the_same_numbers_again, STEPS, "ledgers"),
    (reuse_a_noise_key, STEPS, "noise"),
    (forget_a_debit, STEPS, "ledgers"),
    (let_all_clients_have_one_coin, COHORT, "batches"),
    (reuse_the_masks_of_pairs, STEPS, "masks"),
    (reuse_all_masks, STEPS, "masks"),
    (mask_by_a_seed_of_zeros, STEPS, "masks"),
    (open_a_seed_by_one_share_fewer, STEPS, "masks"),
    (leave_a_number_unmasked, STEPS, "masks"),
    (open_below_the_least, STEPS, "masks"),
    (leave_the_masks_of_the_missing, STEPS, "masks"),
]
NAMES = [
    f"{sabotage.__name__} of {algorithm.placement} in {game}"
    for sabotage, algorithm, game in CAUGHT
]


@cache
def verdict(number: int, game: str) -> str:
    algorithm = (STEPS, CLIENTS, COHORT, QUANTILE, HAAR, QUERY)[number]
    return audit(algorithm, AuditSettings(trials=2000), games=[game]).verdict


@pytest.mark.parametrize(("sabotage", "algorithm", "game"), CAUGHT, ids=NAMES)
def test_a_fault_is_caught(
    sabotage: Sabotage, algorithm: Algorithm, game: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        verdict((STEPS, CLIENTS, COHORT, QUANTILE, HAAR, QUERY).index(algorithm), game)
        == "consistent"
    )
    sabotage(monkeypatch)
    assert audit(algorithm, AuditSettings(trials=2000), games=[game]).verdict == "broken"


@pytest.mark.parametrize("algorithm", [STEPS, QUANTILE], ids=["steps", "a quantile clip"])
def test_nothing_but_noise_tells_neighbours_apart(algorithm: Algorithm) -> None:
    assert audit(algorithm, games=["leaks"]).verdict == "consistent"


def test_the_page_lists_every_fault_with_the_game_that_catches_it() -> None:
    assert missing_rows(CAUGHT) == []
