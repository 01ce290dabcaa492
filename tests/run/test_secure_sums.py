"""Runs whose server sees sums only: the noise of one party, shared; drop-outs; what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2
from torch.nn.utils import parameters_to_vector

import dpfl
from dpfl.algorithms import (
    adap_dp_fl,
    ali_dpfl,
    als_dpfl,
    auto,
    dp_fedavg,
    dp_fedavg_wav,
    dp_ftrl,
    dp_sgd_wav,
    dyn_dp_sgd,
    fedavg,
    fedavg_dp,
    hw_dpfl,
)
from dpfl.algorithms.scaffold import dp_scaffold
from dpfl.client.context import ClientContext
from dpfl.client.dataset import ClientDatasets
from dpfl.client.disclosure_rules import DisclosureRules
from dpfl.client.noise_placement import NoisePlacement
from dpfl.client.optimisers import SGD
from dpfl.client.runner import ClientRunner
from dpfl.client.task import ClientReply, ClientTask, LocalTraining, SecureSumTerms
from dpfl.data import IID, Federation
from dpfl.errors import DpflError
from dpfl.models import FlatModel
from dpfl.models.build import built
from dpfl.planning.planner import with_planned_rate
from dpfl.privacy import Budget, FixedCohort, Flat, Keyed, Ledger, Limit, Poisson, Release
from dpfl.privacy.mechanisms.noise import Gaussian
from dpfl.privacy.mechanisms.noise_shares import NoiseShares
from dpfl.run.folder import RunFolder
from dpfl.server.round_sum import RoundSum
from tests.cli.command_line import dpfl as command
from tests.cli.command_line import refused
from tests.conftest import MODEL, StopsAfter, small_federation, small_source

Train = Callable[..., dpfl.Result]
ONE_STEP = fedavg_dp(tau=1, sampling_rate=0.1, noise_multiplier=1.0, rate=0.5)
SMALL_SETTINGS = (
    "model.name=mlp",
    "model.hidden=8",
    "budget.rounds=1",
    "budget.epsilon=20",
    "data.partition=iid",
    "engine.workers=1",
)
ALL_NOISE = fedavg_dp(tau=1, sampling_rate=0.1, noise_multiplier=1e4, clip=1e-3, rate=1.0)


@pytest.fixture(scope="module", name="ten")
def _ten() -> Federation:
    return small_source().split(clients=10, how=IID(), seed=0)


def events(folder: Path) -> list[dict[Any, int]]:
    found = []
    for path in sorted((folder / "ledger").glob("*.sqlite")):
        ledger = Ledger.read(path)
        found.append(dict(ledger.spending()))
        ledger.close()
    assert found
    return found


def losing(monkeypatch: pytest.MonkeyPatch, *lost: int) -> None:
    """Clients that are never heard of again."""
    work = ClientRunner.work
    monkeypatch.setattr(
        ClientRunner,
        "work",
        lambda self, task, *more: (
            ClientReply(task.client, failed="it is gone")
            if task.client in lost
            else work(self, task, *more)
        ),
    )


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
        FlatModel(built(MODEL, federation.shape, federation.task.outputs, 0), federation.task)
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


def test_a_share_is_sent_to_a_secure_sum_only():
    """A node that was not told by its owner that sums are secure adds no share, and never more
    steps than one.
    """
    release = replace(ONE_STEP.samples, noise_shares=NoiseShares(8, 1))
    task = ClientTask(
        0,
        0,
        1,
        ONE_STEP.local,
        ONE_STEP.clients,
        release,
        secure_sum=SecureSumTerms(1.0, 100.0, 10),
    )
    assert "no secure sum hides it" in DisclosureRules().refusal(task)
    assert DisclosureRules(sums=True).refusal(task) == ""
    for wrong in (
        replace(task, steps=2),
        replace(task, secure_sum=None),
        replace(task, slope=True),
    ):
        assert "anything but one step" in DisclosureRules(sums=True).refusal(wrong)
    with pytest.raises(DpflError, match="counts by 0 to 1"):
        SecureSumTerms(1.01, 1.0, 10)


@pytest.mark.parametrize(
    ("algorithm", "options", "sentence"),
    [
        (fedavg_dp(tau=2, noise_multiplier=1.0), {}, "set algorithm.tau = 1"),
        (fedavg_dp(noise_multiplier=1.0, optimiser="adam", rate=0.1), {}, "optimiser = 'sgd'"),
        (
            ali_dpfl(),
            {},
            "arXiv 2407.19286.*algorithm.most_tau = 1 where a system chooses tau itself",
        ),
        (als_dpfl(most_tau=2), {}, "arXiv 2407.19286"),
        (ali_dpfl(variant="published"), {}, "A secure sum is"),
        (dp_scaffold(noise_multiplier=1.0, tau=1), {}, "a secure sum hides"),
        (adap_dp_fl(tau=1, noise_multiplier=1.0), {}, "A secure sum is proven|a secure sum hides"),
        (hw_dpfl(), {}, "which clients could share"),
        (fedavg(), {}, "which clients could share"),
        (dp_ftrl(cohort=2, noise_multiplier=1.0), {}, "later rounds take back"),
        (dp_fedavg_wav(variant="published", noise_multiplier=1.0), {}, "must bound what the noise"),
        (dp_fedavg(noise_multiplier=1.0, weights="size"), {}, "count alike"),
        (dp_fedavg(noise_multiplier=1.0, cohort=2, sampling="fixed-size"), {}, "draw themselves"),
        (
            dp_fedavg(noise_multiplier=1.0, cohort=2, clipping="public-median"),
            {},
            "not made for secure sums",
        ),
        (ONE_STEP, {"survivors": 2}, "at least 3"),
        (ONE_STEP, {"survivors": 5}, "there are 4 clients"),
        (ONE_STEP, {"aggregation": "masked"}, "privacy.aggregation is"),
        (ONE_STEP, {"aggregation": "plain", "survivors": 3}, "are for secure sums"),
    ],
)
def test_what_has_no_proof_is_refused(
    train: Train, federation: Federation, tmp_path: Path, algorithm, options, sentence
):
    with pytest.raises(DpflError, match=sentence):
        train(federation, algorithm, rounds=1, **{"aggregation": "secure", **options})
    assert not (tmp_path / "run").exists()


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
        lengths = [np.linalg.norm(self.whole.total(sent[client])) for client in range(10)]
        drawn.append(
            sum(
                2**n
                for n, length in enumerate(lengths)
                if length > 5 * self.whole.share * len(sent[0]) ** 0.5
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
            FlatModel(built(MODEL, ten.shape, 10, 0), ten.task).layout
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


def test_a_resumed_run_is_the_run_that_was_never_stopped(train: Train, ten: Federation):
    options = {"rounds": 4, "aggregation": "secure", "survivors": 8, "colluders": 1}
    whole = train(ten, ONE_STEP, out="whole", **options)
    with pytest.raises(KeyboardInterrupt):
        train(ten, ONE_STEP, progress=StopsAfter(2), **options)
    resumed = train(ten, ONE_STEP, resume=True, **options)
    assert resumed.model_sha256 == whole.model_sha256
    assert events(resumed.folder) == events(whole.folder)
    with pytest.raises(DpflError, match="The experiment differs"):
        train(ten, ONE_STEP, resume=True, **{**options, "colluders": 0})


def test_numbers_that_may_have_been_opened_are_never_sent_again(
    train: Train, ten: Federation, monkeypatch
):
    """Fault: a round made again after a crash, with one client less, had the same shares; the two
    sums differ by that client's numbers alone, whose noise is a share. Made again, numbers have new
    noise and are paid for again."""
    options, sums = {"rounds": 3, "aggregation": "secure", "survivors": 8}, []
    update, kept = RoundSum.update, RunFolder.save_checkpoint

    def seen(self: RoundSum, sent: dict[int, np.ndarray], *more: Any) -> Any:
        sums.append(sent)
        return update(self, sent, *more)

    def crash(self: RunFolder, state: Any) -> None:
        if state.round == 2:
            raise KeyboardInterrupt
        kept(self, state)

    monkeypatch.setattr(RoundSum, "update", seen)
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "save_checkpoint", crash)
        with pytest.raises(KeyboardInterrupt):
            train(ten, ONE_STEP, **options)
    losing(monkeypatch, 9)
    resumed = train(ten, ONE_STEP, resume=True, **options)
    assert [len(sent) for sent in sums] == [10, 10, 9, 9]
    assert all((sums[1][client] != sums[2][client]).mean() > 0.9 for client in sums[2])
    assert [sum(spent.values()) for spent in events(resumed.folder)] == [4] * 9 + [2]


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


def test_what_is_not_for_plain_sums_is_refused_by_the_command(capsys: pytest.CaptureFixture[str]):
    assert "are for secure sums" in refused(capsys, "run", "--set", "privacy.survivors=3")


def test_a_clip_of_samples_beneath_a_sum_of_clients_is_no_release_of_samples(ten: Federation):
    """Fault: a client sent the sum of its clipped gradients, which noise for one clipped update
    does not cover.
    """
    clients = Release(clip=Flat(1e-3), noise=Gaussian(1e-6), noise_shares=NoiseShares(8))
    task = ClientTask(
        0,
        0,
        3,
        LocalTraining(SGD(1.0)),
        clients,
        Release(Poisson(1.0), Flat(5.0)),
        secure_sum=SecureSumTerms(1.0, 1e-3, 10),
    )
    assert DisclosureRules(sums=True).refusal(task) == ""
    data = ClientDatasets(ten.train.x, ten.train.y, ten.clients, ten.sizes)
    site = ClientContext("run", MODEL, ten.task, data, Keyed(0))
    node = ClientRunner(site)
    sent = node.work(task, FlatModel(built(MODEL, ten.shape, 10, 0), ten.task).read()).numbers
    node.close()
    assert sent is not None
    assert 0.9e-3 < np.linalg.norm(clients.integer_sum(1e-3, 10).total(sent)) < 1.01e-3


def test_cohorts_are_not_drawn_for_steps_in_a_secure_sum():
    with pytest.raises(DpflError, match="all clients take part"):
        replace(ONE_STEP, clients=Release(FixedCohort(3))).with_secure_sums(NoiseShares(8))
