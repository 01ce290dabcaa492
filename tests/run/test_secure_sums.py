"""Runs whose server sees sums only: the noise of one party, shared; drop-outs; what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2
from torch.nn.utils import parameters_to_vector

import dpfl
from dpfl.algorithms import (
    auto,
    dp_fedavg,
    dp_fedavg_wav,
    dp_sgd_wav,
    dyn_dp_sgd,
    fedavg_dp,
)
from dpfl.client.noise_placement import NoisePlacement
from dpfl.data import IID, Federation
from dpfl.models import FlatModel
from dpfl.models.build import build_module
from dpfl.planning.planner import with_planned_rate
from dpfl.privacy import Budget, Ledger, Limit
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.server.aggregation.round_sum import RoundSum
from tests.cli.command_line import dpfl as command
from tests.conftest import MODEL, small_federation, small_source
from tests.run.secure_runs import ONE_STEP, Train, events, losing

SMALL_SETTINGS = (
    "model.name=mlp",
    "model.hidden=8",
    "budget.rounds=1",
    "budget.epsilon=20",
    "data.partition=iid",
    "engine.workers=1",
)
ALL_NOISE = fedavg_dp(tau=1, sampling_rate=0.1, noise_multiplier=1e4, clip=1e-3, rate=1.0)


def test_every_ledger_pays_what_one_party_with_all_the_data_would_pay(
    train: Train, ten: Federation
):
    shared = train(ten, ONE_STEP, rounds=3, out="shared", aggregation="secure")
    central = train(
        small_source().split(clients=1, how=IID(), seed=0), ONE_STEP, rounds=3, out="central"
    )
    assert (
        set(shared.privacy.per_client.values())
        == {central.privacy.proven}
        == {shared.privacy.proven}
    )
    assert events(shared.folder) == events(central.folder) * 10
    assert shared.privacy.adversary.startswith(
        "the server and the public, who see sums over at least 10 clients only"
    )
    assert shared.privacy.noise == "shared"


def test_masks_and_workers_change_nothing(train: Train, ten: Federation):
    options = {"rounds": 2, "aggregation": "secure", "survivors": 8, "colluders": 1}
    one = train(ten, ONE_STEP, out="plain", **options)
    assert (
        one.model_sha256 == train(ten, ONE_STEP, out="masked", masks=True, **options).model_sha256
    )
    assert (
        one.model_sha256 == train(ten, ONE_STEP, out="workers", workers=2, **options).model_sha256
    )
    assert (
        "up to 1 clients together, who see sums over at least 8 clients only"
        in one.privacy.adversary
    )


@pytest.mark.parametrize(
    ("survivors", "colluders", "lost", "variance"),
    [(10, 0, (), 1.0), (8, 0, (2, 7), 1.0), (8, 1, (2, 7), 8 / 7), (8, 1, (), 10 / 7)],
)
def test_the_noise_of_the_sum_is_what_is_stated(
    train: Train,
    ten: Federation,
    monkeypatch,
    survivors: int,
    colluders: int,
    lost: tuple[int, ...],
    variance: float,
):
    """Noise so large that nothing else is seen: one step from the same model shows it, by a
    chi-square test.
    """
    losing(monkeypatch, *lost)
    options = {
        "aggregation": "secure",
        "survivors": survivors,
        "colluders": colluders,
        "masks": bool(lost),
    }
    moved = first() - last(train(ten, ALL_NOISE, rounds=1, **options))
    left = sum(size for client, size in enumerate(ten.sizes) if client not in lost)
    noise = moved * 0.1 * left  # rate 1, q n over those who are left
    low, high = chi2.ppf([1e-5, 1 - 1e-5], len(noise))
    assert low < (noise**2).sum() / (variance * 10.0**2) < high


def test_every_share_of_the_noise_is_new(train: Train, ten: Federation, monkeypatch):
    """Of every client in every round: where nothing but noise is seen, what was sent has nothing in
    common.
    """
    sent: list[np.ndarray] = []
    update = RoundSum.update

    def seen(self: RoundSum, numbers: dict[int, np.ndarray], *more: Any) -> Any:
        sent.extend(numbers[client].view(np.int32).astype(float) for client in numbers)
        return update(self, numbers, *more)

    monkeypatch.setattr(RoundSum, "update", seen)
    train(ten, ALL_NOISE, rounds=2, aggregation="secure")
    alike = np.corrcoef(sent) - np.eye(20)
    assert np.abs(alike).max() < 5 / math.sqrt(len(sent[0]))


def last(result: dpfl.Result) -> np.ndarray:
    return parameters_to_vector(result.module.parameters()).detach().double().numpy()


def first() -> np.ndarray:
    federation = small_federation()
    return (
        FlatModel(
            build_module(MODEL, federation.shape, federation.task.outputs, 0), federation.task
        )
        .read()
        .double()
        .numpy()
    )


def test_too_few_are_paid_for_and_open_nothing(train: Train, ten: Federation, monkeypatch):
    losing(monkeypatch, 1, 2, 3)
    result = train(ten, ONE_STEP, rounds=2, aggregation="secure", survivors=8)
    assert [line for line in result.lost_replies if "nothing was opened" in line] == [
        f"round {n}: 7 clients are left of 8, so nothing was opened" for n in (1, 2)
    ]
    assert (first() == last(result)).all()
    assert [sum(spent.values()) for spent in events(result.folder)] == [2, 0, 0, 0, *[2] * 6]


def test_a_run_ends_where_too_few_can_pay(train: Train, ten: Federation):
    """Three owners allow less than the others: once they are out, seven are left of eight, and
    nobody pays for nothing.
    """
    before = train(
        ten, ONE_STEP, rounds=1, epsilon=50.0, out="before", aggregation="secure", survivors=8
    )
    ledgers = before.folder / "ledger"
    for name in ten.names[:3]:
        ledger = Ledger.existing(ledgers / f"{name}.sqlite")
        ledger.set_limit(Limit(before.privacy.proven * 1.3, 1e-5))
        ledger.close()
    result = train(
        ten, ONE_STEP, rounds=50, epsilon=50.0, ledger=ledgers, aggregation="secure", survivors=8
    )
    assert result.stopped_by == "survivors"
    assert 0 < result.rounds < 50
    assert len({sum(spent.values()) for spent in events(before.folder)}) == 1


def test_clients_pay_from_their_own_ledgers_and_draw_themselves(train: Train, ten: Federation):
    """At client level: everybody sends, a share of the noise at least; the sum costs what it would
    cost at a trusted server.
    """
    system = dp_fedavg(cohort=5, noise_multiplier=1.0, tau=2, noise="clients")
    shared = train(
        ten,
        system,
        rounds=3,
        out="shared",
        aggregation="secure",
        survivors=8,
        colluders=1,
        masks=True,
    )
    trusted = train(
        ten,
        replace(system, clients=replace(system.clients, shared_by=None)),
        rounds=3,
        out="trusted",
    )
    assert shared.privacy.unit == "client"
    assert events(shared.folder) == events(trusted.folder) * 10
    assert shared.privacy.proven == trusted.privacy.proven
    assert "the server, the public and up to 1 clients together" in shared.privacy.adversary
    assert not any("learns who else was" in fact for fact in shared.privacy.assumptions)


def test_clients_train_as_often_as_is_counted(train: Train, ten: Federation, monkeypatch):
    """A fifth of them in every round, by coins of their own: the others send their noise alone."""
    drawn: list[int] = []
    update = RoundSum.update

    def seen(self: RoundSum, sent: dict[int, np.ndarray], *more: Any) -> Any:
        lengths = [np.linalg.norm(self.integer_sum.total(sent[client])) for client in range(10)]
        drawn.append(
            sum(
                2**n
                for n, length in enumerate(lengths)
                if length > 5 * self.integer_sum.share * len(sent[0]) ** 0.5
            )
        )
        return update(self, sent, *more)

    monkeypatch.setattr(RoundSum, "update", seen)
    train(
        ten,
        dp_fedavg(cohort=2, noise_multiplier=1e-3, clip=1e-2, tau=1),
        rounds=10,
        aggregation="secure",
    )
    assert 8 < sum(some.bit_count() for some in drawn) < 34  # binomial of 100 and 1/5: 1e-3 outside
    assert len(set(drawn)) > 5


def test_the_rate_is_planned_for_the_noise_that_there_is():
    planned = [
        with_planned_rate(algorithm, Budget(rounds=10), [100] * 10, 1000).local.optimiser.rate
        for algorithm in (
            auto(noise_multiplier=1.0),
            auto(noise_multiplier=1.0).with_secure_sums(NoiseShares(10)),
        )
    ]
    assert planned[1] / planned[0] == pytest.approx(math.sqrt(10), rel=0.01)


def test_uniform_weights_shorten_the_larger_clients(train: Train):
    """By size and uniformly the same mean comes out where no noise is seen, masked or not."""
    uneven = small_source().split(clients=4, how=dpfl.data.Dirichlet(0.5), seed=0)
    for weights in ("size", "uniform"):
        system = fedavg_dp(
            tau=1, sampling_rate=1.0, noise_multiplier=1e-3, rate=0.5, weights=weights
        )
        plain = train(uneven, system, rounds=1, out=f"plain-{weights}")
        secure = train(
            uneven, system, rounds=1, out=f"secure-{weights}", aggregation="secure", survivors=3
        )
        assert np.abs(last(plain) - last(secure)).max() < 1e-3


def test_haar_coefficients_are_summed_as_the_clip_bounds_them(train: Train, ten: Federation):
    """|W H| is clipped and W H is sent: the noise of the sum has the energy of the release."""
    for system in (
        dp_fedavg_wav(noise_multiplier=1e4, clip=1e-3, tau=1),
        dp_sgd_wav(noise_multiplier=1e4, clip=1e-3, tau=1, sampling_rate=0.1, rate=1.0),
    ):
        result = train(ten, system, rounds=1, out=system.name, aggregation="secure", masks=True)
        release = system.for_model(
            FlatModel(build_module(MODEL, ten.shape, 10, 0), ten.task).layout
        ).release
        assert release is not None
        moved = (first() - last(result)) * (
            10 if system.placement is NoisePlacement.ROUND_SUM else 100
        )
        assert (moved**2).sum() / 10.0**2 == pytest.approx(release.energy(len(moved)), rel=0.05)


def test_a_planned_schedule_shares_the_noise_of_every_round(train: Train, ten: Federation):
    system = dyn_dp_sgd(tau=1, noise_multiplier=1.0)
    shared = train(
        ten, system, rounds=3, out="shared", aggregation="secure", survivors=8, masks=True
    )
    alone = train(small_source().split(clients=1, how=IID(), seed=0), system, rounds=3, out="alone")
    assert events(shared.folder) == events(alone.folder) * 10
    assert len(events(alone.folder)[0]) == 3
    assert not shared.lost_replies


def test_from_an_experiment_to_a_verified_certificate(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    """With real entropy, where noise that no grid holds would be refused; at client level, where
    Haar noise is.
    """
    key, secure = (
        str(tmp_path / "key.pem"),
        ("privacy.aggregation=secure", "privacy.survivors=8", "privacy.colluders=1"),
    )
    assert command(capsys, "key", "new", key)[0] == 0
    for name, system in {
        "steps": ("algorithm.name=fedavg-dp",),
        "clients": ("algorithm.name=dp-fedavg-wav", "algorithm.tau=1"),
    }.items():
        run = str(tmp_path / name)
        asked = (
            *SMALL_SETTINGS,
            "data.clients=10",
            "engine.masks=true",
            "privacy.entropy=system",
            *secure,
            *system,
        )
        code, out, err = command(
            capsys, "run", *[word for setting in asked for word in ("--set", setting)], "--out", run
        )
        assert code == 0, err
        assert "up to 1 clients together" in " ".join(out.split())
        assert command(capsys, "certify", run, "--key", key)[0] == 0
        code, out, err = command(capsys, "verify", f"{run}/certificate.json", "--key", key + ".pub")
        assert code == 0, out + err
