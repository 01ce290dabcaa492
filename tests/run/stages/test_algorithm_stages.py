"""An algorithm gets its unit, its model and its noise."""

import pytest

import dpfl
from dpfl.algorithms import dp_fedavg, fedavg_dp
from dpfl.errors import DpflError
from dpfl.run.records.folder import RunFolder


def test_secure_noise_comes_with_the_systems_entropy_and_costs_the_same(federation, train):
    algorithm = fedavg_dp(noise_multiplier=1.0)
    keyed = train(federation, algorithm, out="keyed", rounds=2)
    plain = train(federation, algorithm, out="plain", rounds=2, entropy="system", noise="plain")
    secure = train(federation, algorithm, out="secure", rounds=2, entropy="system")
    assert [run.privacy.noise for run in (keyed, plain, secure)] == [
        "floating-point",
        "floating-point",
        "secure",
    ]
    assert secure.privacy.proven == plain.privacy.proven
    recorded = RunFolder.open(secure.folder).experiment()["resolved"]
    assert recorded["noise"] == "secure"
    assert recorded["algorithm"]["samples"]["noise"]["part"] == "noise.secure-gaussian"


@pytest.mark.parametrize(
    ("algorithm", "options", "words"),
    [
        (fedavg_dp(noise_multiplier=1.0), {"noise": "secure"}, "privacy.entropy = 'system'"),
        (fedavg_dp(noise_multiplier=1.0), {"noise": "safe"}, "not 'safe'"),
        (
            dpfl.algorithms.adap_dp_fl(noise_multiplier=1.0),
            {"entropy": "system"},
            "set privacy.noise = 'plain'",
        ),
        (
            dp_fedavg(cohort=2, noise_multiplier=1.0, noise="clients"),
            {"entropy": "system"},
            "set privacy.noise = 'plain'",
        ),
        (dpfl.algorithms.fedavg(), {"noise": "secure", "entropy": "system"}, "adds no noise"),
        (
            dpfl.algorithms.dp_sgd_wav(noise_multiplier=1.0),
            {"entropy": "system"},
            r"Haar.*set privacy.noise = 'plain'",
        ),
    ],
)
def test_secure_noise_that_would_not_be_secure_is_refused(
    federation, train, algorithm, options, words
):
    with pytest.raises(DpflError, match=words):
        train(federation, algorithm, rounds=1, **options)
