"""Systems whose release is planned over all rounds: schedules, clips that follow, and noise that is
taken back.
"""

import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import dp_accounting as dp
import pytest
import torch
from safetensors import safe_open

import dpfl
from dpfl.algorithms import (
    Algorithm,
    adap_dp_fl,
    ali_dpfl,
    dp_ftrl,
    dyn_dp_fedavg,
    dyn_dp_sgd,
    fedavg_dp,
    ldp_fl,
    nbafl,
)
from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.privacy import Ledger, accountant
from dpfl.privacy.queries.histogram import LabelQuery
from dpfl.server.schedules import AdaptiveSchedule, DecaySchedule
from dpfl.server.weights import HellingerWeights
from tests.conftest import StopsAfter, ledger_of

Train = Callable[..., dpfl.Result]

SYSTEMS: dict[str, Algorithm] = {
    "dyn-dp-sgd": dyn_dp_sgd(tau=2, sampling_rate=0.3, rate=1.0, phases=3),
    "adap-dp-fl": adap_dp_fl(tau=2, sampling_rate=0.3, rate=2.0, alpha=3.0, beta=0.9),
    "dp-ftrl": dp_ftrl(cohort=5, tau=8, noise_multiplier=0.1),
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_it_learns_inside_its_budget_and_is_the_same_on_workers_and_after_a_resume(
    train: Train, federation: Federation, crowd: Federation, name: str
) -> None:
    data = crowd if name == "dp-ftrl" else federation
    options: dict[str, Any] = {
        "rounds": 8,
        "epsilon": None if name == "dp-ftrl" else 12.0,
        "accountant": "rdp",
    }
    whole = train(data, SYSTEMS[name], **options)
    assert whole.accuracy > 0.3
    assert whole.privacy.proven <= (options["epsilon"] or math.inf)
    assert (
        train(data, SYSTEMS[name], out="two", workers=2, **options).model_sha256
        == whole.model_sha256
    )
    with pytest.raises(KeyboardInterrupt):
        train(data, SYSTEMS[name], out="broken", progress=StopsAfter(5), **options)
    resumed = train(data, SYSTEMS[name], out="broken", resume=True, **options)
    assert resumed.model_sha256 == whole.model_sha256
    assert resumed.privacy.proven == whole.privacy.proven
    assert [row.clip for row in resumed.history] == [row.clip for row in whole.history]


def test_a_schedule_spends_epsilon_and_its_ledger_holds_every_kind_of_event(
    train: Train, federation: Federation
) -> None:
    result = train(
        federation, dyn_dp_sgd(tau=2, sampling_rate=0.3, rate=1.0, phases=3), epsilon=8.0, rounds=6
    )
    assert 7.9 < result.privacy.proven <= 8.0
    spent = ledger_of(result, "client-00001")
    assert sorted(spent.values()) == [4, 4, 4]
    assert result.privacy.proven == pytest.approx(accountant("pld").epsilon(spent, 1e-5))
    assert result.privacy.claimed == pytest.approx(accountant("gdp-clt").epsilon(spent, 1e-5))
    shown = [row.epsilon for row in result.history]
    assert shown == sorted(shown)
    assert [row.clip for row in result.history] == pytest.approx(
        [1.5 * 0.3 ** (round / 6) for round in range(6)]
    )


def test_a_schedule_with_given_noise_stops_inside_epsilon(
    train: Train, federation: Federation
) -> None:
    made = dyn_dp_sgd(sampling_rate=0.3, noise_multiplier=1.2, phases=3)
    result = train(federation, made, epsilon=4.0, rounds=12, accountant="rdp")
    assert result.stopped_by == "epsilon"
    assert result.rounds < 12
    assert result.privacy.proven <= 4.0


def test_a_published_schedule_claims_what_it_planned_and_proves_more(
    train: Train, federation: Federation
) -> None:
    result = train(
        federation, dyn_dp_sgd("published", sampling_rate=0.05, phases=3), epsilon=2.0, rounds=6
    )
    assert result.privacy.claimed == pytest.approx(2.0, abs=0.01)
    assert result.privacy.proven > 1.3 * result.privacy.claimed


def test_a_schedule_needs_its_rounds(train: Train, federation: Federation) -> None:
    with pytest.raises(DpflError, match=r"give budget\.rounds"):
        train(federation, dyn_dp_sgd(noise_multiplier=1.0), epsilon=2.0)


def test_a_second_run_on_the_same_ledgers_has_what_the_first_left(
    train: Train, federation: Federation, tmp_path: Any
) -> None:
    made = dyn_dp_sgd(sampling_rate=0.3, noise_multiplier=1.8, phases=2)
    first = train(
        federation, made, epsilon=4.0, rounds=4, accountant="rdp", ledger=tmp_path / "mine"
    )
    second = train(
        federation,
        made,
        epsilon=4.0,
        rounds=12,
        accountant="rdp",
        ledger=tmp_path / "mine",
        out="second",
    )
    assert first.rounds == 4
    assert 0 < second.rounds < 12
    assert second.privacy.proven <= 4.0


def test_what_is_asked_before_the_first_round_is_left_room_for(
    train: Train, federation: Federation
) -> None:
    made = dyn_dp_sgd(sampling_rate=0.3, noise_multiplier=1.2, phases=3)
    asked = replace(made, weights=HellingerWeights("similarity", LabelQuery(2.0)))
    alone = train(federation, made, epsilon=4.0, rounds=12, accountant="rdp")
    both = train(federation, asked, epsilon=4.0, rounds=12, accountant="rdp", out="both")
    assert 0 < both.rounds < alone.rounds
    assert both.privacy.proven <= 4.0
    assert not both.lost


def test_the_clip_of_adap_follows_what_was_released(train: Train, federation: Federation) -> None:
    result = train(
        federation, adap_dp_fl(tau=2, sampling_rate=0.3, noise_multiplier=0.8, alpha=2.0), rounds=5
    )
    clips = [row.clip for row in result.history]
    assert clips[0] == 1.0
    assert len(set(clips)) > 1


def test_a_run_with_noise_that_is_taken_back_pays_once_and_forgets_the_noise_in_the_end(
    train: Train, crowd: Federation
) -> None:
    result = train(crowd, dp_ftrl(cohort=5, tau=2), epsilon=6.0, rounds=6)
    ((event, count),) = ledger_of(result, "federation").items()
    assert isinstance(event, dp.GaussianDpEvent)
    assert count == 1
    assert 5.99 < result.privacy.proven <= 6.0
    with safe_open(result.folder / "checkpoint.safetensors", "pt") as file:
        assert not [name for name in file.keys() if "noise" in name]  # noqa: SIM118


def test_noise_that_is_taken_back_without_room_in_the_ledger_is_refused(
    train: Train, crowd: Federation
) -> None:
    with pytest.raises(DpflError, match="no budget left"):
        train(crowd, dp_ftrl(cohort=5, noise_multiplier=0.5), epsilon=1.0, rounds=4)


def test_nbafl_clips_models_and_adds_noise_both_ways(train: Train, federation: Federation) -> None:
    published = nbafl(
        "published", total_epsilon=8.0, samples=250, clients=4, rounds=8, exposures=1, clip=6.0
    )
    c = math.sqrt(2 * math.log(1.25e5))
    assert published.updates.stddev() == pytest.approx(c * 2 * 6.0 / (250 * 8.0))
    assert published.server.noise == pytest.approx(
        2 * c * 6.0 * math.sqrt(8**2 - 4) / (250 * 4 * 8.0)
    )
    assert published.claim.epsilon({published.stated_event(0): 1}, 1e-5) == 8.0
    sound = nbafl(noise_multiplier=1.0, clip=6.0)
    assert sound.updates.stddev() == pytest.approx(12.0)
    assert sound.server.noise == 0.0
    result = train(federation, nbafl(noise_multiplier=1e-4, clip=0.5), rounds=2)
    vector = torch.cat([parameter.detach().flatten() for parameter in result.module.parameters()])
    assert float(vector.norm()) < 0.55, "a mean of clipped models"


def test_a_schedule_needs_a_flat_clip_and_fixed_steps() -> None:
    for made in (
        ali_dpfl(),
        ldp_fl(noise_multiplier=1.0),
        fedavg_dp(clipping="per-layer", noise_multiplier=1.0),
    ):
        with pytest.raises(DpflError, match="A schedule needs"):
            replace(made, schedule=DecaySchedule())
    with pytest.raises(DpflError, match="needs noise in their steps"):
        replace(dyn_dp_fedavg(noise_multiplier=1.0), schedule=AdaptiveSchedule())


def spent_by(folder: Path) -> int:
    with closing(Ledger.read(folder / "federation.sqlite")) as ledger:
        return sum(ledger.spending().values())


@pytest.mark.parametrize(("entropy", "passes"), [("system", 3), ("keyed", 1)])
def test_rounds_of_one_release_that_are_made_again_are_paid_for_unless_they_are_the_same(
    train: Train, federation: Federation, tmp_path: Path, entropy: str, passes: int
) -> None:
    """Fault: an old checkpoint gave a second and a third model, with noise of their own, for the
    price of the first.
    """
    options: dict[str, Any] = {"rounds": 3, "entropy": entropy, "noise": "plain"}
    with pytest.raises(KeyboardInterrupt):
        train(federation, dp_ftrl(noise_multiplier=2.0), progress=StopsAfter(1), **options)
    old = (tmp_path / "run" / "checkpoint.safetensors").read_bytes()
    models = set()
    for _ in range(3):
        (tmp_path / "run" / "checkpoint.safetensors").write_bytes(old)
        models.add(
            train(federation, dp_ftrl(noise_multiplier=2.0), resume=True, **options).model_sha256
        )
    assert len(models) == spent_by(tmp_path / "run" / "ledger") == passes


def test_a_release_of_all_rounds_that_was_paid_for_is_missed_where_its_ledger_is_lost(
    train: Train, federation: Federation, tmp_path: Path
) -> None:
    """Fault: dp-fedavg's 8.39 and dp-ftrl's 1.99 became 1.99, since a run that pays once counted as
    one that paid nothing.
    """
    options: dict[str, Any] = {"rounds": 2, "ledger": tmp_path / "ledgers"}
    with pytest.raises(KeyboardInterrupt):
        train(federation, dp_ftrl(noise_multiplier=2.0), progress=StopsAfter(1), **options)
    for path in (tmp_path / "ledgers").glob("federation*"):
        path.unlink()
    with pytest.raises(DpflError, match="lost debits of this run"):
        train(federation, dp_ftrl(noise_multiplier=2.0), resume=True, **options)
