"""What has no proof, or no secure sum, is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpfl.algorithms import (
    adap_dp_fl,
    ali_dpfl,
    als_dpfl,
    dp_fedavg,
    dp_fedavg_wav,
    dp_ftrl,
    fedavg,
    fedavg_dp,
    hw_dpfl,
)
from dpfl.algorithms.scaffold import dp_scaffold
from dpfl.client.context import ClientContext
from dpfl.client.dataset import ClientDatasets
from dpfl.client.descent.optimisers import SGD
from dpfl.client.disclosure_rules import DisclosureRules
from dpfl.client.runner import ClientRunner
from dpfl.client.task import ClientTask, LocalTraining, SecureSumTerms
from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.models import FlatModel
from dpfl.models.build import build_module
from dpfl.privacy import FixedCohort, Flat, Keyed, Poisson, Release
from dpfl.privacy.mechanisms.noises.noise import Gaussian
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from tests.cli.command_line import refused
from tests.conftest import MODEL
from tests.run.secure_runs import ONE_STEP, Train


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
    with pytest.raises(DpflError, match="must be between 0 and 1, not"):
        SecureSumTerms(1.01, 1.0, 10)


@pytest.mark.parametrize(
    ("algorithm", "options", "sentence"),
    [
        (fedavg_dp(tau=2, noise_multiplier=1.0), {}, "set algorithm.tau = 1"),
        (fedavg_dp(noise_multiplier=1.0, optimiser="adam", rate=0.1), {}, "optimiser = 'sgd'"),
        (
            ali_dpfl(),
            {},
            "arXiv 2407.19286.*algorithm.most_tau = 1 if the system chooses tau",
        ),
        (als_dpfl(most_tau=2), {}, "arXiv 2407.19286"),
        (ali_dpfl(variant="published"), {}, "A secure sum needs"),
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
    sent = node.work(
        task, FlatModel(build_module(MODEL, ten.shape, 10, 0), ten.task).read()
    ).numbers
    node.close()
    assert sent is not None
    assert 0.9e-3 < np.linalg.norm(clients.integer_sum(1e-3, 10).total(sent)) < 1.01e-3


def test_cohorts_are_not_drawn_for_steps_in_a_secure_sum():
    with pytest.raises(DpflError, match="all clients take part"):
        replace(ONE_STEP, clients=Release(FixedCohort(3))).with_secure_sums(NoiseShares(8))
