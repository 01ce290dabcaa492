"""Faults put into the code on purpose: an audit catches each of them. docs/truth.md lists them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from dpfl.algorithms import ali_dpfl, auto, custom, dp_fedavg, fedavg_dp, hw_dpfl
from dpfl.audit import AuditSettings, audit
from dpfl.privacy.queries.metric import MetricQuery
from dpfl.server.algorithm import Algorithm
from tests.audit.fault_table import missing_rows
from tests.audit.faults import (
    Sabotage,
    account_rows_for_persons,
    adapt_the_clip_before_the_noise,
    clip_uploads_at_twice_the_level,
    count_the_shares_of_lost_replies,
    divide_by_the_batch,
    draw_cohorts_from_a_known_seed,
    drop_the_clip,
    forget_a_debit,
    forget_the_noise_of_the_count,
    halve_the_noise,
    halve_the_noise_of_the_histogram,
    halve_the_noise_of_the_mean,
    halve_the_noise_of_the_metric,
    halve_the_noise_of_the_slope,
    leave_weights_uncapped,
    let_the_last_bit_follow_the_batch,
    make_fresh_noise_under_an_old_name,
    name_system_noise_as_if_it_could_be_repeated,
    prepare_a_system_run_with_a_known_seed,
    repeat_the_noise_every_few_numbers,
    repeat_the_noise_for_another_client,
    repeat_the_noise_in_every_step_of_a_round,
    repeat_the_noise_whatever_the_seed,
    repeat_the_noise_within_a_release,
    reuse_a_noise_key,
    shuffle_batches_for_poisson,
    use_one_batch_for_all_steps_of_a_round,
)

SAMPLES, CLIENTS = fedavg_dp(noise_multiplier=1.0), dp_fedavg(noise_multiplier=1.0)
UPLOADS = custom(where="uploads", noise_multiplier=1.0)
PERSONS = SAMPLES.for_unit("person")
QUANTILE = dp_fedavg(clipping="quantile", noise_multiplier=1.0)
COHORTS = dp_fedavg(cohort=20, noise_multiplier=1.0)
SHARED = dp_fedavg(cohort=10, noise="clients", noise_multiplier=1.0)
SECURE = SAMPLES.with_secure_noise()
CAUGHT: list[tuple[Sabotage, Algorithm, str]] = [
    (halve_the_noise, SAMPLES, "one release"),
    (halve_the_noise, UPLOADS, "one release"),
    (halve_the_noise, CLIENTS, "one release"),
    (drop_the_clip, SAMPLES, "one release"),
    (drop_the_clip, SAMPLES, "whole run"),
    (drop_the_clip, UPLOADS, "one release"),
    (drop_the_clip, CLIENTS, "one release"),
    (reuse_a_noise_key, SAMPLES, "ledgers"),
    (reuse_a_noise_key, UPLOADS, "ledgers"),
    (reuse_a_noise_key, CLIENTS, "ledgers"),
    (forget_a_debit, replace(SAMPLES, steps=replace(SAMPLES.steps, tau=3)), "ledgers"),
    (forget_a_debit, UPLOADS, "ledgers"),
    (forget_a_debit, CLIENTS, "ledgers"),
    (divide_by_the_batch, SAMPLES, "leaks"),
    (forget_the_noise_of_the_count, QUANTILE, "leaks"),
    (shuffle_batches_for_poisson, SAMPLES, "batches"),
    (shuffle_batches_for_poisson, COHORTS, "batches"),
    (use_one_batch_for_all_steps_of_a_round, SAMPLES, "batches"),
    (halve_the_noise_of_the_mean, auto(), "query"),
    (halve_the_noise_of_the_histogram, hw_dpfl(), "query"),
    (
        halve_the_noise_of_the_metric,
        replace(SAMPLES, metric=MetricQuery(10.0, 2, 20, 4.0, 0.0)),
        "query",
    ),
    (halve_the_noise_of_the_slope, ali_dpfl(mu="paid"), "slope"),
    (leave_weights_uncapped, dp_fedavg(weights="size"), "sensitivity"),
    (clip_uploads_at_twice_the_level, UPLOADS, "sensitivity"),
    (clip_uploads_at_twice_the_level, CLIENTS, "sensitivity"),
    (drop_the_clip, hw_dpfl(), "sensitivity"),
    (halve_the_noise, SECURE, "noise"),
    (repeat_the_noise_within_a_release, SAMPLES, "noise"),
    (repeat_the_noise_every_few_numbers, CLIENTS, "noise"),
    (repeat_the_noise_in_every_step_of_a_round, SAMPLES, "noise"),
    (repeat_the_noise_for_another_client, UPLOADS, "noise"),
    (repeat_the_noise_whatever_the_seed, CLIENTS, "noise"),
    (reuse_a_noise_key, SAMPLES, "noise"),
    (make_fresh_noise_under_an_old_name, SAMPLES, "ledgers"),
    (make_fresh_noise_under_an_old_name, CLIENTS, "ledgers"),
    (name_system_noise_as_if_it_could_be_repeated, UPLOADS, "ledgers"),
    (name_system_noise_as_if_it_could_be_repeated, CLIENTS, "ledgers"),
    (adapt_the_clip_before_the_noise, QUANTILE, "noise"),
    (draw_cohorts_from_a_known_seed, COHORTS, "batches"),
    (prepare_a_system_run_with_a_known_seed, COHORTS, "batches"),
    (count_the_shares_of_lost_replies, SHARED, "noise"),
    (let_the_last_bit_follow_the_batch, SAMPLES, "amplification"),
    (let_the_last_bit_follow_the_batch, PERSONS, "amplification"),
    (account_rows_for_persons, PERSONS, "sensitivity"),
    (account_rows_for_persons, auto().for_unit("person"), "query"),
]
HARD = AuditSettings(trials=2000, runs=150)
NAMES = [
    f"{sabotage.__name__} of {algorithm.placement} in {game}"
    for sabotage, algorithm, game in CAUGHT
]


def verdict_before(case: int) -> str:
    """The verdict without the fault, computed once per system and game."""
    first = next(number for number, other in enumerate(CAUGHT) if other[1:] == CAUGHT[case][1:])
    return _verdict(first)


@cache
def _verdict(case: int) -> str:
    return audit(CAUGHT[case][1], HARD, games=[CAUGHT[case][2]]).verdict


@pytest.mark.parametrize(("sabotage", "algorithm", "game"), CAUGHT, ids=NAMES)
def test_a_fault_is_caught(
    sabotage: Sabotage, algorithm: Algorithm, game: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert verdict_before(CAUGHT.index((sabotage, algorithm, game))) == "consistent"
    sabotage(monkeypatch)
    assert audit(algorithm, HARD, games=[game]).verdict == "broken"


def test_the_page_lists_every_fault_with_the_game_that_catches_it() -> None:
    assert missing_rows(CAUGHT) == []
