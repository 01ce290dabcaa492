"""The tables of docs/truth.md that say which game catches which planted fault."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.audit.faults import Sabotage

PAGE = Path(__file__).parents[2] / "docs" / "truth.md"

PHRASES = {
    "account_rows_for_persons": "treat rows as persons",
    "adapt_the_clip_before_the_noise": "adapt the clip before the noise",
    "clip_uploads_at_twice_the_level": "clip updates at twice the clip norm",
    "count_colluders_among_those_who_hide": "count colluders among the honest clients",
    "count_ten_times_as_much": "count ten times as much",
    "count_the_noise_of_the_missing": "count the noise of missing clients",
    "count_the_shares_of_lost_replies": "count the shares of lost replies",
    "divide_by_the_batch": "divide by the batch that was drawn",
    "draw_cohorts_from_a_known_seed": "draw cohorts from a known seed",
    "drop_the_clip": "omit the clip",
    "forget_a_debit": "omit a debit",
    "forget_the_noise_of_the_count": "omit the noise of the count",
    "halve_the_noise": "halve",
    "halve_the_noise_of_the_histogram": "halve the noise of a mean, a histogram or a metric",
    "halve_the_noise_of_the_mean": "halve the noise of a mean, a histogram or a metric",
    "halve_the_noise_of_the_metric": "halve the noise of a mean, a histogram or a metric",
    "halve_the_noise_of_the_slope": "halve the noise of a slope",
    "halve_the_shares": "halve the shares",
    "leave_a_number_unmasked": "leave a number unmasked",
    "leave_out_a_share": "omit a share of the noise",
    "leave_the_masks_of_the_missing": "leave the masks of missing members",
    "leave_weights_uncapped": "do not cap weights",
    "let_all_clients_have_one_coin": "give all clients the same coin",
    "let_the_last_bit_follow_the_batch": "let float32 values depend on the number of rows",
    "make_fresh_noise_under_an_old_name": "draw fresh noise under an old name",
    "mask_by_a_seed_of_zeros": "mask with a seed of zeros",
    "name_system_noise_as_if_it_could_be_repeated": "name system noise as if it were repeatable",
    "open_a_seed_by_one_share_fewer": "open a seed with one share fewer",
    "open_below_the_least": "open a sum with too few survivors",
    "prepare_a_system_run_with_a_known_seed": "prepare a run with system entropy from a known seed",
    "repeat_the_noise_every_few_numbers": "every few numbers",
    "repeat_the_noise_for_another_client": "for another client (shifted)",
    "repeat_the_noise_in_every_step_of_a_round": "repeat noise in every step",
    "repeat_the_noise_whatever_the_seed": "for every seed",
    "repeat_the_noise_within_a_release": "repeat noise within a release",
    "reuse_a_noise_key": "reuse a noise key",
    "reuse_all_masks": "or all masks, in another round",
    "reuse_the_masks_of_pairs": "reuse the masks of pairs",
    "send_the_same_numbers_again": "send the same numbers again after a crash",
    "shuffle_batches_for_poisson": "use shuffled batches or cohorts of one size",
    "use_one_batch_for_all_steps_of_a_round": "use one batch for all steps of a round",
}
"""How the page words each fault."""


def missing_rows(faults: Iterable[tuple[Sabotage, Any, str]]) -> list[tuple[str, str]]:
    """Returns the faults, each with its game, that no row of the page's tables names."""
    rows = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return [
        (sabotage.__name__, game)
        for sabotage, _, game in faults
        if not any(PHRASES[sabotage.__name__] in row[1] and f"`{game}`" in row[2] for row in rows)
    ]
